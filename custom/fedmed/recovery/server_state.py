"""What the server needs to continue a run: written after every finished round, so that a kill at any point leaves
a whole state.

``server_state.json`` names the models it belongs to, ``models/round_<r>.pt``, and what the server's rule left in the
same round, ``rule/round_<r>.pt``, if it left anything. These files are there before the state that names them, and are
deleted only after the state that no longer does. So they never mix, whatever ``FL_global_model.pt`` holds by then.

The state of the round before is kept too, ``server_state_before.json``, with its files: all carry digests, and where
one of the last round is damaged, the run goes back to the round before.
"""

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmed.durable_files import link, load_tensors, save_json, save_tensors, sealed, unsealed
from fedmed.errors import JobError, StateError
from fedmed.jobs.job_meta import check_plain
from fedmed.recovery.rule_state import RuleState
from fedmed.recovery.saved_state import SavedState
from fedmed.recovery.site_state import check_kept
from fedmed.settings.yaml_model import Document, check_model

log = logging.getLogger("fedmed.server")
STATE, MODELS, RULE, ROUNDS, RESULT = "server_state.json", "models", "rule", "rounds.jsonl", "result.json"
BEFORE = "server_state_before.json"
FORMAT = 1


class ServerState:
    """The files of a run's state.

    Args:
        folder: the job's folder at the server, ``…/fedmed``, or a copy of it.

    Attributes:
        kept: the states that this object has written and that are still there: of the last round, and of the one
            before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.path, self.models, self.rules = self.folder / STATE, self.folder / MODELS, self.folder / RULE
        self.before_path = self.folder / BEFORE
        self.kept: list[SavedState] = []

    def model_path(self, round: int) -> Path:
        """Where the model aggregated in ``round`` is kept."""
        return self.models / f"round_{round}.pt"

    def rule_path(self, round: int) -> Path:
        """Where what the rule left in ``round`` is kept."""
        return self.rules / f"round_{round}.pt"

    def save(
        self,
        state: SavedState,
        tensors: Mapping[int, Mapping[str, Tensor]],
        last: Path | None = None,
        rule: RuleState | None = None,
    ) -> None:
        """Write a state after the files that it names; that of an earlier round stays as the one before.

        Args:
            state: the state.
            tensors: round -> the model aggregated in it, for every round in ``state.models``.
            last: file that holds the model of ``state.round`` already; it is linked, which takes no time and space.
            rule: what the rule left in ``state.round``, if ``state.rule``.

        Raises:
            StateError: the disk is full or the folder cannot be written; the older state stays.
        """
        for round in sorted(state.models):
            path = self.model_path(round)
            if not path.is_file() and not (last and round == state.round and link(last, path)):
                save_tensors(path, {"model": dict(tensors[round]), "meta": {"round": round}})
        if rule is not None and not (path := self.rule_path(state.round)).is_file():
            save_tensors(path, {"meta": {"round": state.round}, **rule.content()})
        before = [kept for kept in self.kept if kept.round < state.round][:1]
        if before and before[0] is self.kept[0]:
            _write(self.before_path, before[0])
        _write(self.path, state)
        self.kept = [state, *before]
        needed = {path for kept in self.kept for path in self._files(kept)}
        for path in (*self.models.iterdir(), *self.rules.glob("*")):
            if path not in needed:
                path.unlink()

    def put(self, state: SavedState) -> None:
        """Write a state alone; the files that it names are put beside it by the caller."""
        _write(self.path, state)

    def _files(self, state: SavedState) -> list[Path]:
        return [*map(self.model_path, sorted(state.models)), self.rule_path(state.round)]

    def read(self) -> SavedState:
        """Read the state of the last round; whether the files that it names are sound is another question.

        Raises:
            StateError: there is none, it is damaged, or it is of another FedMed.
        """
        return _read(self.path)

    def sound(self, sites: Mapping[str, Path] | None = None, back: bool = False) -> SavedState:
        """The state of the last round, or that of the round before where a file of the last one is damaged.

        Args:
            sites: site -> its folder of the job, where this machine has it: then what it kept is looked at too.
            back: take the round before whatever the last one is, since a site has said that its own file is damaged.

        Raises:
            StateError: what is kept of the round before is damaged too, or nothing is; names each file.
        """
        try:
            if back:
                raise StateError(f"the state of the last round in {self.folder} is not to be used")
            return self._whole(self.path, sites or {})
        except StateError as error:
            if not self.before_path.is_file():
                raise StateError(f"{error}. No state of an earlier round is kept here to go back to") from error
            try:
                before = self._whole(self.before_path, sites or {})
            except StateError as other:
                raise StateError(f"{error}; and of the round before: {other}") from other
            log.warning("%s. The run goes back to its round %d", error, before.round)
            return before

    def settle(self, sites: Mapping[str, Path]) -> None:
        """Make the sound state the last one; arguments and errors as of :meth:`sound`."""
        last = self.sound(sites)
        if self.before_path.is_file() and last == _read(self.before_path):
            os.replace(self.before_path, self.path)

    def _whole(self, path: Path, sites: Mapping[str, Path]) -> SavedState:
        state = _read(path)
        for round in sorted(state.models):
            self.read_model(round)
        self.read_rule(state)
        for site, folder in sites.items():
            rounds = {state.last_round.get(site), state.best_private.get(site)} - {None}
            check_kept(folder, [round for round in rounds if round is not None])
        return state

    def read_model(self, round: int) -> dict[str, Tensor]:
        """Read a kept model.

        Raises:
            StateError: the file is missing, damaged, or of another round.
        """
        return dict(_of_round(self.model_path(round), round)["model"])

    def read_rule(self, state: SavedState) -> RuleState | None:
        """Read what the rule left in the state's round; None if nothing.

        Raises:
            StateError: the file is missing, damaged, or of another round.
        """
        path = self.rule_path(state.round)
        return RuleState.from_content(_of_round(path, state.round), path) if state.rule else None

    def read_rounds(self, until: int) -> list[dict[str, Any]]:
        """Lines of ``rounds.jsonl`` up to a round, without what a kill left of a later line."""
        lines, path = {}, self.folder / ROUNDS
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                line = json.loads(text)
                lines[int(line["round"])] = line
        return [lines[round] for round in sorted(lines) if round <= until]

    def remove(self) -> None:
        """The run is finished: nothing continues it."""
        for path in (self.path, self.before_path):
            path.unlink(missing_ok=True)
        self.kept = []
        for folder in (self.models, self.rules):
            shutil.rmtree(folder, ignore_errors=True)


def _write(path: Path, state: SavedState) -> None:
    save_json(path, sealed({"format": FORMAT, **state.model_dump()}))


def _read(path: Path) -> SavedState:
    try:
        content = unsealed(json.loads(path.read_text(encoding="utf-8")))
        if content.pop("format") != FORMAT:
            raise StateError(f"{path} was written by another version of FedMed; continue with that one")
        known = {key: value for key, value in content.items() if key in SavedState.model_fields}
        state = check_model(Document(path, known), SavedState, error=JobError)
        for id in state.earlier:
            check_plain(id)
        return state
    except (OSError, ValueError, TypeError, KeyError, AttributeError, JobError) as error:
        raise StateError(f"{path} cannot be read: {error}; copy the run's folder again") from error


def _of_round(path: Path, round: int) -> dict[str, Any]:
    content = load_tensors(path)
    if content.get("meta", {}).get("round") != round:
        raise StateError(f"{path} is of another round; copy the run's folder again")
    return content
