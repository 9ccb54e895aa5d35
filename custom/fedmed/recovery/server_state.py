"""What the server needs to continue a run: written after every finished round, so that a kill at any point leaves
a whole state.

``server_state.json`` names the models it belongs to, ``models/round_<r>.pt``, and what the server's rule left in the
same round, ``rule/round_<r>.pt``, if it left anything. These files are there before the state that names them, and are
deleted only after the state that no longer does. So they never mix, whatever ``FL_global_model.pt`` holds by then.
"""

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmed.durable_files import link, load_tensors, save_json, save_tensors
from fedmed.errors import JobError, StateError
from fedmed.jobs.job_id import check_plain
from fedmed.recovery.rule_state import RuleState
from fedmed.recovery.saved_state import SavedState
from fedmed.settings.yaml_model import Document, check_model

STATE, MODELS, RULE, ROUNDS, RESULT = "server_state.json", "models", "rule", "rounds.jsonl", "result.json"
FORMAT = 1


class ServerState:
    """The files of a run's state.

    Args:
        folder: the job's folder at the server, ``…/fedmed``, or a copy of it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.path, self.models, self.rules = self.folder / STATE, self.folder / MODELS, self.folder / RULE

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
        """Write a state after the files that it names.

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
        save_json(self.path, {"format": FORMAT, **state.model_dump()})
        needed = {self.model_path(round) for round in state.models} | {self.rule_path(state.round)}
        for path in (*self.models.iterdir(), *self.rules.glob("*")):
            if path not in needed:
                path.unlink()

    def read(self) -> SavedState:
        """Read the state.

        Raises:
            StateError: there is none, it is damaged, or it is of another FedMed.
        """
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            if content.pop("format") != FORMAT:
                raise StateError(f"{self.path} was written by another version of FedMed; continue with that one")
            known = {key: value for key, value in content.items() if key in SavedState.model_fields}
            state = check_model(Document(self.path, known), SavedState, error=JobError)
            for id in state.earlier:
                check_plain(id)
            return state
        except (OSError, ValueError, TypeError, KeyError, AttributeError, JobError) as error:
            raise StateError(f"{self.path} cannot be read: {error}; copy the run's folder again") from error

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
        self.path.unlink(missing_ok=True)
        for folder in (self.models, self.rules):
            shutil.rmtree(folder, ignore_errors=True)


def _of_round(path: Path, round: int) -> dict[str, Any]:
    content = load_tensors(path)
    if content.get("meta", {}).get("round") != round:
        raise StateError(f"{path} is of another round; copy the run's folder again")
    return content
