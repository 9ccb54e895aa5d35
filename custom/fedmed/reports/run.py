"""Read what a run left on disk.

A run is a simulator workspace, the equal tree of the in-process loop, or the server's own folder of a real
federation, where the sites' folders (pictures, cases) never arrive. Rounds are counted from 0 in the files.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fedmed.bundles.score import DICE, Score
from fedmed.errors import FedMedError, JobError
from fedmed.files import read_json
from fedmed.reports.rounds import Round, read_rounds
from fedmed.reports.run_files import DAMAGED, number, read_lines, read_table
from fedmed.reports.run_score import score_of
from fedmed.reports.words import join

JOB_FOLDER = Path("simulate_job") / "fedmed"
SERVER_FOLDERS = (Path("server") / JOB_FOLDER, Path("workspace/fedmed"), Path("fedmed"), Path("."))
ROLES = ("supervised", "unsupervised", "evaluate")  # the order of a report, labelled sites first
KINDS = ("best", "median", "worst")


@dataclass
class Site:
    """One site of the run; ``folder`` is None where the site's files are not here.

    Attributes:
        cases: rows of the testing list's ``cases.csv``, as text; empty when private to the site.
        closing_score: validation score of the last aggregate, when the site was asked for it.
        errors: messages of the site's ``error`` events.
    """

    name: str
    role: str
    weight: float = 1.0
    folder: Path | None = None
    cases: list[dict[str, str]] = field(default_factory=list)
    closing_score: float | None = None
    errors: list[str] = field(default_factory=list)

    def pictures(self, read: Callable[[Path, str], Any]) -> Iterator[Any]:
        """Read the pictures that are on disk, best first; with one or two cases, one stands for several kinds.

        Args:
            read: takes the path and the kind of a picture; what it returns has a ``case`` and a ``kind``.

        Raises:
            DataError: a picture's file is damaged or incomplete.
        """
        paths = {kind: self.folder / "evaluation" / f"{kind}.npz" for kind in KINDS} if self.folder else {}
        found = [read(path, kind) for kind, path in paths.items() if path.is_file()]
        for case in dict.fromkeys(picture.case for picture in found):
            same = [picture for picture in found if picture.case == case]
            yield replace(same[0], kind=join([picture.kind for picture in same]))


@dataclass
class Run:
    """Everything a report shows. ``result`` is None for a run that was interrupted or is still going."""

    folder: Path
    job: str
    bundle: str
    overlays: list[str]
    seed: int | None
    total_rounds: int
    sites: list[Site]
    rounds: list[Round]
    result: dict[str, Any] | None
    started: str
    config: dict[str, Any]
    versions: dict[str, Any]
    hardware: dict[str, Any]
    resumed: dict[str, int] = field(default_factory=dict)  # jobs that it continued -> rounds done when each ended
    score: Score = DICE
    kind: str = ""  # of the task, as the bundle named it; empty in runs of an earlier FedMed

    @property
    def has_site_folders(self) -> bool:
        return any(site.folder for site in self.sites)

    @property
    def plan(self) -> dict[str, Any]:
        """Plain arguments of the job's controller."""
        return self.config.get("controller") or {}

    @property
    def validated(self) -> bool:
        """Whether labelled sites score the models of the rounds."""
        return self.plan.get("select", "best") != "last"

    @property
    def tested(self) -> bool:
        """Whether the sites test the model at the end."""
        return self.plan.get("evaluate", True) is not False

    @property
    def scored(self) -> bool:
        """Whether any site is ever asked for a score."""
        return self.validated or self.tested

    def by_role(self, role: str) -> list[Site]:
        return [site for site in self.sites if site.role == role]


def server_folder(folder: Path) -> Path:
    """Return the folder that holds ``run.json``.

    Raises:
        JobError: the folder is missing, is no run, or the run stopped before it began.
    """
    if not folder.is_dir():
        raise JobError(f"no run at {folder}: the folder does not exist; give the workspace of a simulator run")
    for candidate in SERVER_FOLDERS:
        if (folder / candidate / "run.json").is_file():
            return folder / candidate
    if (folder / "server").is_dir():
        raise JobError(
            f"the run at {folder} stopped before its first round: {SERVER_FOLDERS[0] / 'run.json'} is missing; "
            f"the reason is in the log ({folder.name}.log beside it, or server/log.txt inside)"
        )
    raise JobError(
        f"{folder} is not the folder of a run: neither {SERVER_FOLDERS[0] / 'run.json'} nor run.json is in it; "
        "give the simulator's workspace (default: simulator_workspace) or the server's job folder"
    )


def read_run(folder: str | Path) -> Run:
    """Read a run, finished or not.

    Raises:
        JobError: the folder is missing, is no run, or the run stopped before it began.
        FedMedError: a file of the run is damaged.
    """
    folder = Path(folder).expanduser().absolute()
    server = server_folder(folder)
    facts = read_json(server / "run.json", FedMedError, DAMAGED)
    ended = (server / "result.json").is_file()
    result = read_json(server / "result.json", FedMedError, DAMAGED) if ended else None
    rounds = read_rounds(server / "rounds.jsonl")
    sites, score = facts.get("sites") or {}, score_of(facts)
    return Run(
        folder=folder,
        job=str(facts.get("job") or folder.name),
        bundle=str(facts.get("bundle") or "unknown"),
        overlays=[str(overlay) for overlay in facts.get("overlays") or []],
        seed=facts.get("seed"),
        total_rounds=int(facts.get("rounds") or len(rounds)),
        sites=sorted((_site(folder, name, entry, score) for name, entry in sites.items()), key=_role_order),
        rounds=rounds,
        result=result,
        started=str(facts.get("started") or ""),
        score=score,
        kind=str(facts.get("kind") or ""),
        **{key: facts.get(key) or {} for key in ("config", "versions", "hardware", "resumed")},
    )


def _role_order(site: Site) -> int:
    return ROLES.index(site.role) if site.role in ROLES else len(ROLES)


def _site(root: Path, name: str, facts: dict[str, Any], score: Score) -> Site:
    site = Site(name, str(facts.get("role") or "unknown"), number(facts.get("weight")) or 0.0)
    if not (root / name / JOB_FOLDER).is_dir():
        return site
    site.folder = root / name / JOB_FOLDER
    site.cases = read_table(site.folder / "evaluation" / "cases.csv")
    for line in read_lines(site.folder / "progress.jsonl"):
        if line.get("event") == "validated" and line.get("task") == "validate":
            site.closing_score = number(line.get("score", line.get(score.name)))  # the name: runs of an earlier FedMed
        if line.get("event") == "error":
            site.errors.append(error_text(line))
    return site


def error_text(line: dict[str, Any]) -> str:
    """The message of an ``error`` event."""
    return str(line.get("message") or line.get("error") or line.get("reason") or "no message was written")
