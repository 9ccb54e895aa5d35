"""Read a finished run: what the server wrote about it, and the models it kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmed.bundles.score import DICE, Score, parse_score
from fedmed.durable_files import load_tensors
from fedmed.errors import ExportError, FedMedError, JobError, StateError
from fedmed.jobs.job import Job
from fedmed.jobs.study import Study
from fedmed.methods.method import Method
from fedmed.recovery.model_store import BEST, LAST
from fedmed.reports.run_files import read_lines, read_record
from fedmed.settings.server import load_server

SELECTED, LAST_MODEL = "selected", "last"
# What a study names to start from; the models of a finished run hold all weights.
STARTED_FROM: dict[str, Any] = dict.fromkeys(("checkpoint", "encoder", "resume")) | {"checkpoint_tensors": []}
# A simulator's workspace, its server, a downloaded result, a server's run folder, and the folder of the records itself.
PLACES = ("server/simulate_job/fedmed", "simulate_job/fedmed", "workspace/fedmed", "fedmed", ".")


@dataclass(frozen=True)
class FinishedRun:
    """A run that reached its end.

    Attributes:
        folder: as given by the user.
        records: the folder of ``run.json``; models lie in the app folder beside it.
        facts: ``run.json``.
        rounds: ``rounds.jsonl``.
        result: ``result.json``.
    """

    folder: Path
    records: Path
    facts: Mapping[str, Any]
    rounds: Sequence[Mapping[str, Any]]
    result: Mapping[str, Any]

    @property
    def config(self) -> Mapping[str, Any]:
        """Configuration of the run: ``study``, ``rule``, ``model``."""
        return self.facts["config"]

    @cached_property
    def job(self) -> Job:
        """The job, without the files that it started from.

        Raises:
            JobError: the record does not say what this FedMed wants to know.
        """
        job = Job.of(self.config["study"], load_server().allowed_classes)
        return replace(job, study=job.study.model_copy(update=STARTED_FROM))

    @property
    def study(self) -> Study:
        """Sites, roles and rounds, as the server had them."""
        return self.job.study

    @property
    def score(self) -> Score:
        """Score by which the run's models were compared; Dice in runs that do not say it."""
        values = self.facts.get("score")
        return DICE if values is None else parse_score(values, self.records / "run.json")

    @property
    def method(self) -> Method:
        return self.job.method

    def accepted(self, site: str, until: int) -> int | None:
        """The last round up to ``until`` in which an update of the site entered the model."""
        lines = [line for line in self.rounds if line.get("aggregated") is not False and line["round"] <= until]
        return max((line["round"] for line in lines if site in line.get("accepted", ())), default=None)

    def contributed(self, site: str) -> tuple[int, int]:
        """In how many of its rounds an update of a site that trains moved the model, and how many these were."""
        warm = 0 if self.facts["sites"][site]["role"] == "supervised" else self.study.warm_start.rounds
        rounds = [line for line in self.rounds if line["round"] >= warm]
        moved = [line for line in rounds if line.get("aggregated") and site in line.get("accepted", ())]
        return sum((line.get("coefficients") or {}).get(site, 1.0) > 0 for line in moved), len(rounds)

    def model(self, which: str) -> tuple[int, dict[str, Tensor]]:
        """Return (round it was aggregated in, tensors) of the ``selected`` or the ``last`` model.

        Round -1 is the starting model. Without a score that could choose, the last model is the selected one.

        Raises:
            ExportError: the file is missing, damaged, or of another round than the run's records say.
        """
        best = self.result.get("best_round")
        chosen = which == SELECTED and best is not None
        last = max((line["round"] for line in self.rounds if line.get("aggregated")), default=-1)
        round: int = best if best is not None and chosen else last
        name = BEST if chosen else LAST
        path = next(iter(sorted(self.records.parent.glob(f"app_*/{name}"))), None)
        if path is None:
            raise ExportError(f"{self.records.parent} has no app_server/{name}; copy the run's folder completely")
        try:
            content = load_tensors(path)
        except StateError as error:
            raise ExportError(str(error)) from error
        tensors, meta = content.get("model"), content.get("meta") or {}
        if not isinstance(tensors, Mapping) or not all(isinstance(value, Tensor) for value in tensors.values()):
            raise ExportError(f"{path} is damaged: it does not hold a 'model' of named tensors; copy the run again")
        if meta.get("round", round) != round:
            raise ExportError(
                f"{path} is the model after round {meta['round']}, but {self.records} tells of round {round}; "
                "the folder mixes two runs: copy the run again"
            )
        return round, dict(tensors)


def read_finished(folder: str | Path) -> FinishedRun:
    """Read a run: a simulator's workspace, a downloaded job result, or a server's run folder.

    Raises:
        ExportError: no such folder, no run, several runs, an unfinished or a damaged one; says what was looked for.
    """
    folder = Path(folder).expanduser().absolute()
    records = _records(folder)
    if not (records / "result.json").is_file():
        raise ExportError(
            f"the run at {folder} did not finish: {records / 'result.json'} is missing; its models are of the middle "
            "of a training. Wait for it, or run the job again"
        )
    try:
        facts, result = (read_record(records / name) for name in ("run.json", "result.json"))
        run = FinishedRun(folder, records, facts, read_lines(records / "rounds.jsonl"), result)
        _ = run.score  # read once, so that a damaged one is found here
        if not run.config["model"]["digest"] or not run.job.rule or not run.rounds:
            raise KeyError("rounds.jsonl")
    except (KeyError, TypeError, JobError) as error:
        raise ExportError(
            f"{records} is damaged or of another FedMed: {error} is missing from run.json or empty; copy it again"
        ) from error
    except FedMedError as error:
        raise ExportError(str(error)) from error
    return run


def _records(folder: Path) -> Path:
    if not folder.is_dir():
        what = "it is a file; unpack it or give its folder" if folder.exists() else "the folder does not exist"
        raise ExportError(f"no run at {folder}: {what}")
    inside = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    only = inside if len(inside) == 1 else []  # NVFlare downloads a job into a folder of its id
    for root in (folder, *only):
        for place in PLACES:
            if (root / place / "run.json").is_file():
                return root / place
    looked = ", ".join(f"{place}/run.json" for place in PLACES[:4])
    raise ExportError(
        f"{folder} is not the folder of a run. Looked for {looked}; give a simulator's workspace (default: "
        "simulator_workspace), a downloaded job result, or the server's run folder"
    )
