"""State that a site keeps to itself between rounds, and finds again when another job resumes the run."""

import logging
import os
import shutil
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmed.durable_files import check_digest, link, load_tensors, save_file, save_tensors
from fedmed.errors import JobError, StateError
from fedmed.files import RESUME_ROOT
from fedmed.jobs.job_meta import check_plain

log = logging.getLogger("fedmed.site")
START = -1  # as a model's round: the starting model, which the job itself describes
RECEIVED, BEST_MODEL, ALONE_MODEL = "received.pt", "own_best.pt", "alone_best.pt"
BACK = "the run can go back a round: write its next job with fedmed study resume --back"
COPIES = {BEST_MODEL: "own_best_copy.pt", ALONE_MODEL: "alone_best_copy.pt"}  # of what is nowhere else
ALONE = "alone"  # in a round's state: the model that the site trains alone, with its optimizer's state


class SiteState:
    """A site's private state, one file a round: ``state/round_<r>.pt``; for a while a model that it received; and the
    one that it scored best, ``state/own_best.pt``.

    Args:
        made_with: plain settings of the training; a state that was made with others is not continued.

    Attributes:
        earlier: of the task at hand, see :class:`fedmed.messages.task.Task`.
    """

    def __init__(self, folder: Path, made_with: Mapping[str, Any] | None = None) -> None:
        self.root, self.folder = Path(folder), Path(folder) / "state"
        self.made_with = dict(made_with or {})
        self.earlier: Mapping[str, int] = {}

    def _path(self, round: int) -> Path:
        if type(round) is not int or round < 0:  # it comes from the network, and becomes a part of a path
            raise JobError(f"{round!r} is not a round of a run; do server and site use the same FedMed?")
        return self.folder / f"round_{round}.pt"

    def load(self, round: int | None) -> dict[str, Any]:
        """Return the state written in ``round``; ``{}`` for None (a site's first round).

        Raises:
            StateError: the round's file is missing or damaged, or was made with other settings.
            JobError: what the task says of earlier jobs is malformed.
        """
        if round is None:
            return {}
        self.take_over(round)
        try:
            return load_tensors(self._path(round))
        except StateError as error:
            looked = ", ".join(str(place.parent) for place in self._places(self._path(round), self._jobs(round)))
            back = f"{BACK}; " if self._path(round).is_file() else ""
            hint = (
                f"{back}the job continues another one, whose state was looked for in {looked}: put that folder back, "
                "or write the job with fedmed study resume --allow-fresh and this site's name, so that it starts afresh"
            )
            hint = hint if looked else f"{back}without that state the site cannot continue"
            raise StateError(f"the site's private state of round {round} cannot be read: {error}; {hint}") from error

    def _jobs(self, round: int) -> list[str]:
        """Earlier jobs of the run that would keep a round's state, the newest first; of :data:`START` all."""
        earlier = self.earlier  # it comes from the network
        if not isinstance(earlier, Mapping) or not all(type(done) is int for done in earlier.values()):
            raise JobError(f"the task names the jobs that it continues as {earlier!r}; do both use the same FedMed?")
        return jobs_with_state(round, earlier)

    def earlier_jobs(self) -> list[Path]:
        """Folders of this site in the earlier jobs of the run, the newest first; JobError: the task's are malformed."""
        return [folder_of_job(id, self.root) for id in self._jobs(START)]

    def _places(self, path: Path, jobs: Iterable[str]) -> list[Path]:
        return [folder_of_job(id, self.root) / "state" / path.name for id in jobs]

    def take_over(self, round: int) -> None:
        """Get a round's state from the job of the run that made it, which stays as it was; errors: :meth:`load`."""
        self._copy(path := self._path(round), self._places(path, self._jobs(round)))

    def _copy(self, path: Path, places: Iterable[Path]) -> None:
        """Have a file of an earlier job here too, if there is one, and none here."""
        files = [place for place in places if place.is_file()]
        if path.is_file() or not files:
            return
        try:
            made_with = load_tensors(files[0]).get("made_with", {})
        except StateError as error:
            raise StateError(f"{error}; {BACK}") from error
        for key, value in self.made_with.items():
            if made_with.get(key) != value:
                raise StateError(
                    f"{files[0]} was made with '{key}' {made_with.get(key)!r}, this job has {value!r}: it is not the "
                    "run that it says it continues; use the same job, or start a new run"
                )
        if not link(files[0], path):  # a state file is never written twice, so a second name is as good as a copy
            with files[0].open("rb") as source:
                save_file(path, lambda stream: shutil.copyfileobj(source, stream))

    def save(self, round: int, private: Mapping[str, Tensor], **content: Any) -> None:
        """Write the state of ``round``, then it is safe to answer the server."""
        facts = {"round": round, "made_with": self.made_with}
        save_tensors(self._path(round), {**facts, "private": dict(private), **content})

    def best(self, name: str = BEST_MODEL) -> dict[str, Any]:
        """Content that :meth:`keep_best` kept last, in this job or an earlier one of the run; ``{}`` if nothing."""
        try:
            return self._best(name)
        except StateError as error:
            if not (copy := self._best(COPIES[name])):
                raise
            log.warning("%s; its copy %s is taken", error, COPIES[name])
            return copy

    def _best(self, name: str) -> dict[str, Any]:
        self._copy(path := self.folder / name, self._places(path, self._jobs(START)))
        return load_tensors(path) if path.is_file() else {}

    def alone(self, private_round: int | None) -> dict[str, Any]:
        """The model that the site trained alone: the best by its own validation list, else the last; ``{}`` if none."""
        if best := self.best(ALONE_MODEL):
            return best
        return self.last_alone(private_round)

    def last_alone(self, private_round: int | None, before: int | None = None) -> dict[str, Any]:
        """The model trained alone as it was after the last round that the site trained, of those before one, with its
        optimizer's state; ``{}`` if there is none.
        """
        if private_round is not None:
            self.take_over(private_round)
        rounds = [int(path.stem.removeprefix("round_")) for path in self.folder.glob("round_*.pt")]
        known = [round for round in rounds if before is None or round < before]
        last: dict[str, Any] = self.load(max(known)).get(ALONE, {}) if known else {}
        return last

    def keep_best(self, round: int, score: float, tensors: Mapping[str, Tensor], name: str = BEST_MODEL) -> None:
        """Keep a whole model in the place of the one before, twice."""
        facts = {"round": round, "score": score, "made_with": self.made_with}
        for file in (name, COPIES[name]):
            save_tensors(self.folder / file, {**facts, "tensors": dict(tensors)})

    def cache(self, round: int, tensors: Mapping[str, Tensor]) -> None:
        """Keep a round's received tensors for its task to train, which comes without them."""
        save_tensors(self.folder / RECEIVED, {"round": round, "tensors": dict(tensors)})

    def cached(self, round: int) -> dict[str, Tensor]:
        """Tensors that :meth:`cache` kept; a StateError where there is nothing, or of another round."""
        content = load_tensors(self.folder / RECEIVED)
        if content.get("round") != round:
            raise StateError(f"{self.folder / RECEIVED} is of round {content.get('round')}, round {round} is trained")
        return dict(content["tensors"])

    def clear_cache(self) -> None:
        """Delete what :meth:`cache` kept."""
        (self.folder / RECEIVED).unlink(missing_ok=True)

    def prune(self, keep: Collection[int]) -> None:
        """Delete the files of all rounds not in ``keep``."""
        names = {self._path(round).name for round in keep}
        for path in self.folder.glob("round_*.pt"):
            if path.name not in names:
                path.unlink()


def check_kept(folder: Path, rounds: Iterable[int]) -> None:
    """Look at what a site kept of some rounds, where it is in this job's folder; an earlier job may have it.

    Raises:
        StateError: a file is damaged; names it.
    """
    for path in (Path(folder) / "state" / f"round_{round}.pt" for round in rounds):
        if path.is_file():
            check_digest(path)
    for pair in COPIES.items():
        _check_one_of([path for name in pair if (path := Path(folder) / "state" / name).is_file()])


def _check_one_of(copies: list[Path]) -> None:
    faults = []
    for path in copies:
        try:
            check_digest(path)
        except StateError as error:
            faults.append(str(error))
    if copies and len(faults) == len(copies):
        raise StateError(
            f"{' '.join(faults)} Without them the site would choose its best model among later rounds alone"
        )


def folder_of_job(id: str, folder: Path) -> Path:
    """Folder in which another job kept what this one keeps in ``folder``.

    Args:
        folder: ``<workspace>/<this job>/fedmed``; jobs of one site or server lie side by side. Where
            ``$FEDMED_RESUME_ROOT`` is set, ``id`` is a simulator's workspace below it.

    Raises:
        JobError: the id is not a plain name.
    """
    folder, id = Path(folder), check_plain(id)
    if root := os.environ.get(RESUME_ROOT):
        return Path(root, id, *folder.parts[-3:])  # <site>/simulate_job/fedmed
    return folder.parent.parent / id / folder.name


def jobs_with_state(round: int, earlier: Mapping[str, int]) -> list[str]:
    """Jobs that can hold a site's state of a round, the newest first.

    It was made by the first job that got beyond the round; later ones may hold copies. What a still earlier job has
    under that round's name was never taken into the model, and the round was repeated.

    Args:
        earlier: job -> rounds of the run that were done when it ended, oldest first.
    """
    return [id for id, done in reversed(list(earlier.items())) if round < done]
