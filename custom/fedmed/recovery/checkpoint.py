"""A run's checkpoints at the server: ``{part: state}`` after every finished round, so that a kill at any point leaves a
whole one.

``checkpoints/round_<r>.pt`` names the models that it needs, ``models/round_<r>.pt``. These are there before it, and are
deleted only after it. So they never mix, whatever ``FL_global_model.pt`` holds by then. The checkpoint of the round
before is kept too, with its models. All carry digests, and where a file of the last round is damaged, the run goes back
to the round before.
"""

import contextlib
import json
import logging
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, ValidationError, field_validator, model_validator
from torch import Tensor

from fedmed.durable_files import link, load_tensors, save_tensors
from fedmed.errors import JobError, StateError
from fedmed.jobs.job import Job
from fedmed.jobs.job_meta import PLAIN
from fedmed.privacy.payload import describe
from fedmed.recovery.model_store import ModelStore
from fedmed.recovery.site_state import START, check_kept, folder_of_job
from fedmed.settings.yaml_model import YamlModel

log = logging.getLogger("fedmed.server")
CHECKPOINTS, MODELS, ROUNDS, RESULT = "checkpoints", "models", "rounds.jsonl", "result.json"
FINGERPRINT = "fingerprint.json"  # what the sites said of their images before the first round
CARRIED = "resume"  # folder in the server's app in which a job brings the checkpoint that it continues
EARLIER, FORMAT = "server_state.json", 2  # what FedMed 0.1 wrote in its place
MAY_CHANGE = {  # how long, for whom to wait, what to tell; all else would make it another run
    "name", "rounds", "min_clients", "max_failed_rounds", "task_timeout", "evaluate", "evaluate_last",
    "evaluate_first", "fingerprint", "release_from", "collapse_guard", "resume", "patience", "min_rounds",
    "release_weights", "release_partial", "release_keep", "max_norm_ratio", "max_samples", "custom",
    "overrides", "role_overlays",  # each site compares its own, and the server those of its network
}  # fmt: skip
Round = Annotated[int, Field(ge=START, lt=10**6)]
Count = Annotated[int, Field(ge=1)]
Norm = Annotated[float, Field(ge=0, allow_inf_nan=False)]
JobId = Annotated[str, Field(pattern=PLAIN)]


class OfServer(YamlModel):
    """Progress of a run.

    Attributes:
        round: the last round whose updates were aggregated; later rounds that failed are repeated.
        last_round: site -> round of its last update in the model.
        counted: site -> rounds in which its update moved the model.
        earlier: earlier jobs of the run -> rounds that were done when each ended, oldest first.
        network: tensor -> its dtype and shape, in words.
    """

    round: int = Field(ge=0, lt=10**6)
    last_round: Mapping[str, Round]
    counted: Mapping[str, Count]
    earlier: Mapping[JobId, Round]
    seconds: float
    network: Mapping[str, str]


class OfSelection(YamlModel):
    """Attributes of :class:`fedmed.federation.selection.ModelSelection`; ``best_score`` is None where it has none."""

    best_round: Round | None
    best_score: float | None
    best_model: Round
    best_private: Mapping[str, Round]
    best_scores: Mapping[str, float]
    temperature: float | None = Field(gt=0)


class Checkpoint(YamlModel):
    """A run after its last good round: what it is made of, and the state of each part of the server.

    A job may bring it, and its rounds become parts of paths at server and sites.

    Attributes:
        config: what must not change, see :func:`config_of`.
        newest: rounds whose models' mean may be the result.
        exchange: the mean of what sites told of their images before training.
        norms: site -> norms of its updates in the latest rounds.
        told: site -> the counts that it told first.
        rule: of the rule, and of the server's own training.
        server, selection, stopping, guard: of these parts.
    """

    config: Mapping[str, Any]
    server: OfServer
    selection: OfSelection
    stopping: Mapping[str, int | None]
    newest: Sequence[Round]
    exchange: Mapping[str, Any]
    norms: Mapping[str, Sequence[Norm]]
    told: Mapping[str, Mapping[str, Count]]
    guard: Mapping[str, Any]
    rule: Mapping[str, Any]

    @field_validator("rule")
    @classmethod
    def _of_a_rule(cls, rule: Mapping[str, Any]) -> Mapping[str, Any]:
        parts = ("state", "for_roles", "values", "training")
        if rule and not (isinstance(rule.get("rule"), str) and all(isinstance(rule.get(p), Mapping) for p in parts)):
            raise ValueError("it does not hold the state of a rule")
        return rule

    @model_validator(mode="after")
    def _knows_no_later_round(self) -> Self:
        rounds = (*self.server.last_round.values(), *self.selection.best_private.values(), *self.newest)
        if max(*rounds, self.selection.best_model, START) > self.round:
            raise ValueError("it speaks of rounds after its own")
        return self

    @property
    def round(self) -> int:
        """The last good round."""
        return self.server.round

    @property
    def models(self) -> set[int]:
        """Rounds whose models it needs."""
        chosen = START if self.selection.best_round is None else self.selection.best_model
        return {self.round, *self.newest, chosen} - {START}

    def private_rounds(self, site: str) -> set[int]:
        """Rounds whose private state the site must keep for it."""
        rounds = {self.server.last_round.get(site), self.selection.best_private.get(site)}
        return {round for round in rounds if round is not None}

    def check_same(self, config: Mapping[str, Any]) -> None:
        """Refuse to continue the run with a job that would make another one of it.

        Raises:
            JobError: names what differs, or says that the job asks for no further round.
        """
        for part, ours in config.items():
            theirs = self.config.get(part, {})
            for key in sorted(set(ours) | set(theirs)):
                if ours.get(key) != theirs.get(key) and not (part == "study" and key in MAY_CHANGE):
                    now, then = (repr(said[key]) if key in said else "the default" for said in (ours, theirs))
                    raise JobError(
                        f"the job is not the one that it resumes: '{key}' of its {part} is {now}, it was {then}; use "
                        "the same job and the same version of the bundle, or start a new run"
                    )
        rounds = config["study"]["rounds"]
        if rounds <= self.round:
            done = self.round + 1
            raise JobError(f"the run that the job resumes has {done} rounds; 'rounds' is {rounds}, ask for more")

    def check_network(self, model: Mapping[str, Tensor]) -> None:
        """Refuse to continue the run with a model of another network.

        Raises:
            StateError: names the tensor that differs.
        """
        ours, theirs = describe(model), self.server.network
        for name in sorted(set(ours) | set(theirs)):
            if ours.get(name) != theirs.get(name):
                there, here = theirs.get(name, "missing"), ours.get(name, "missing")
                raise StateError(
                    f"the checkpoint is of another network: tensor '{name}' is {there} there and {here} here; go on "
                    "with the job that made it, or start a new run"
                )


def config_of(job: Job, store: ModelStore) -> dict[str, Any]:
    """Plain values of what a run is made of."""
    return {"study": job.recorded, "rule": job.rule, "model": store.describe()}


class Checkpoints:
    """The checkpoints of a run.

    Attributes:
        kept: those that this object has written and that are still there: of the last round, and of the one before.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(folder)
        self.models = self.folder / MODELS
        self.kept: list[Checkpoint] = []

    def path(self, round: int) -> Path:
        """File of a round's checkpoint."""
        return self.folder / CHECKPOINTS / f"round_{round}.pt"

    def model_path(self, round: int) -> Path:
        """File of the model aggregated in ``round``."""
        return self.models / f"round_{round}.pt"

    @property
    def rounds(self) -> list[int]:
        """Of which rounds there are checkpoints, the last first."""
        paths = (self.folder / CHECKPOINTS).glob("round_*.pt")
        return sorted((int(m[1]) for path in paths if (m := re.fullmatch(r"round_(\d+)\.pt", path.name))), reverse=True)

    def there(self) -> bool:
        """Tell whether there is a checkpoint of this FedMed; a StateError where it is of another."""
        if not self.rounds and (earlier := self.folder / EARLIER).is_file():
            raise StateError(f"{earlier} was written by another version of FedMed; continue with that one")
        return bool(self.rounds)

    def save(self, states: Mapping[str, Any], models: Mapping[int, Mapping[str, Tensor]], last: Path) -> None:
        """Write a checkpoint after the models that it needs; that of an earlier round stays as the one before.

        Args:
            models: round -> the model aggregated in it, for every round that it needs.
            last: file that may hold the model of its round; it is linked, which takes no time and space.

        Raises:
            StateError: the disk is full or the folder cannot be written; the older checkpoint stays.
        """
        made = Checkpoint(**states)
        for round in sorted(made.models):
            path = self.model_path(round)
            if not path.is_file() and not (round == made.round and link(last, path)):
                save_tensors(path, {"model": dict(models[round]), "meta": {"round": round}})
        save_tensors(self.path(made.round), {"format": FORMAT, **states})
        self.kept = [made, *[kept for kept in self.kept if kept.round < made.round][:1]]
        needed = {path for one in self.kept for path in (self.path(one.round), *map(self.model_path, one.models))}
        for path in (*self.models.iterdir(), *(self.folder / CHECKPOINTS).iterdir()):
            if path not in needed:
                path.unlink()

    def needed_of(self, site: str) -> list[int]:
        """Rounds whose private state a site must keep for the checkpoints that are kept."""
        return sorted({round for one in self.kept for round in one.private_rounds(site)})

    def read(self, round: int | None = None) -> Checkpoint:
        """Read the checkpoint of a round, the last one by default; whether its models are sound is another question.

        Raises:
            StateError: there is none, it is damaged, of another round, or of another FedMed.
        """
        if round is None and not self.rounds:
            raise StateError(f"{self.folder} holds no checkpoint")
        path = self.path(round := self.rounds[0] if round is None else round)
        content = load_tensors(path)
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise StateError(f"{path} was written by another version of FedMed; continue with that one")
        try:
            checkpoint = Checkpoint.model_validate(content, strict=True)
        except ValidationError as error:
            what = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()[:3])
            raise StateError(f"{path} cannot be read: {what}; copy the run's folder again") from error
        if checkpoint.round != round:
            raise StateError(f"{path} is of another round; copy the run's folder again")
        return checkpoint

    def sound(self, sites: Mapping[str, Path] | None = None, back: bool = False) -> Checkpoint:
        """The checkpoint of the last round, or that of the round before where a file of the last one is damaged.

        Args:
            sites: site -> its folder of the job, where this machine has it: then what it kept is looked at too.
            back: take the round before whatever the last one is, since a site has said that its own file is damaged.

        Raises:
            StateError: what is kept of the round before is damaged too, or nothing is; names each file.
        """
        last, *before = self.rounds
        try:
            if back:
                raise StateError(f"the checkpoint of the last round in {self.folder} is not to be used")
            return self._whole(last, sites or {})
        except StateError as error:
            if not before:
                raise StateError(f"{error}. No checkpoint of an earlier round is kept here to go back to") from error
            try:
                earlier = self._whole(before[0], sites or {})
            except StateError as other:
                raise StateError(f"{error}; and of the round before: {other}") from other
            log.warning("%s. The run goes back to its round %d", error, earlier.round)
            return earlier

    def settle(self, sites: Mapping[str, Path]) -> None:
        """Make the sound checkpoint the last one; arguments and errors as of :meth:`sound`."""
        sound = self.sound(sites)
        for round in self.rounds:
            if round > sound.round:
                self.path(round).unlink()

    def _whole(self, round: int, sites: Mapping[str, Path]) -> Checkpoint:
        checkpoint = self.read(round)
        for needed in sorted(checkpoint.models):
            self.read_model(needed)
        for site, folder in sites.items():
            check_kept(folder, checkpoint.private_rounds(site))
        return checkpoint

    def read_model(self, round: int) -> dict[str, Tensor]:
        """Read a kept model; a StateError where the file is missing, damaged, or of another round."""
        content = load_tensors(path := self.model_path(round))
        if content.get("meta", {}).get("round") != round:
            raise StateError(f"{path} is of another round; copy the run's folder again")
        return dict(content["model"])

    def read_rounds(self, until: int) -> list[dict[str, Any]]:
        """Lines of ``rounds.jsonl`` up to a round, without what a kill left of a later line."""
        lines, path = {}, self.folder / ROUNDS
        for text in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else ():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                line = json.loads(text)
                lines[int(line["round"])] = line
        return [lines[round] for round in sorted(lines) if round <= until]

    def carry(self, checkpoint: Checkpoint, folder: Path) -> None:
        """Copy a checkpoint and all that it needs to a folder that does not exist; a StateError for a damaged model."""
        other = Checkpoints(folder)
        for place in (other.models, folder / CHECKPOINTS):
            place.mkdir(parents=True)
        shutil.copyfile(self.path(checkpoint.round), other.path(checkpoint.round))
        for name in (ROUNDS, FINGERPRINT):
            if (self.folder / name).is_file():
                shutil.copyfile(self.folder / name, folder / name)
        for round in sorted(checkpoint.models):
            self.read_model(round)  # a damaged one is found here, not at the server
            shutil.copyfile(self.model_path(round), other.model_path(round))

    def remove(self) -> None:
        """The run is finished: nothing continues it."""
        self.kept = []
        for folder in (CHECKPOINTS, MODELS):
            shutil.rmtree(self.folder / folder, ignore_errors=True)


def find_checkpoints(id: str, app: Path, folder: Path) -> Checkpoints:
    """Find the checkpoints of the job that is resumed: brought by this one, or in the server's own workspace.

    Args:
        app: this job's app folder at the server.
        folder: this job's folder at the server.

    Raises:
        StateError: they are in neither place, or that job was finished; says where they were looked for.
    """
    places = [app / CARRIED, folder_of_job(id, folder)]
    for place in places:
        if (place / RESULT).is_file():
            raise StateError(f"job '{id}' was finished ({place / RESULT}); there is nothing to resume")
        if (checkpoints := Checkpoints(place)).there():
            return checkpoints
    looked = "\n".join(f"    {place / CHECKPOINTS}" for place in places)
    raise StateError(
        f"the state of job '{id}' is not at this server. Looked for\n{looked}\nDownload that job's result, or find its "
        "run folder, and write the job with fedmed study resume; without a finished round, submit the old job again"
    )
