"""Contents of a run for a report: plain values, and no file but the pictures."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from fedmed.bundles.score import Score
from fedmed.data.patients import TrainedOn
from fedmed.data.structure import Structure
from fedmed.methods.declarations import USED_LABELS
from fedmed.methods.find_method import method_spec, study_of_run
from fedmed.methods.method import Method
from fedmed.reports.run_files import Round
from fedmed.reports.words import join

PICTURES = ("best", "median", "worst")
UNSCORED = "not scored"  # the kind of a picture whose case nobody has marked


@dataclass
class Site:
    """One site of the run; ``folder`` is None where the site's files are not here.

    Attributes:
        cases: the testing list's ``cases.csv``, as text, and whose each case is (``patient``); empty when private to
            the site.
        closing_score: validation score of the last aggregate, when the site was asked for it.
        adapted: what it decided that adapts to its own images, in words, where its own files are here.
        trains_on: what it trains on, where its own files are here; None else, for it tells nobody.
        errors: messages of the site's ``error`` events.
    """

    name: str
    role: str
    weight: float = 1.0
    folder: Path | None = None
    cases: pd.DataFrame = field(default_factory=pd.DataFrame)
    closing_score: float | None = None
    trains_on: TrainedOn | None = None
    adapted: str = ""
    errors: list[str] = field(default_factory=list)

    def pictures(self, read: Callable[[Path, str], Any]) -> Iterator[Any]:
        """Read the pictures that are on disk, best first; with one or two cases, one stands for several kinds. Those of
        cases that nobody has marked come last.

        Args:
            read: takes the path and the kind of a picture; what it returns has a ``case`` and a ``kind``. It raises
                DataError for a damaged file.
        """
        if self.folder is None:
            return
        folder = self.folder / "evaluation"
        paths = [(folder / f"{kind}.npz", kind) for kind in PICTURES]
        paths += [(path, UNSCORED) for path in sorted(folder.glob("unscored_*.npz"))]
        pictures = [read(path, kind) for path, kind in paths if path.is_file()]
        for case in dict.fromkeys(picture.case for picture in pictures):
            same = [picture for picture in pictures if picture.case == case]
            yield replace(same[0], kind=join(list(dict.fromkeys(picture.kind for picture in same))))


@dataclass
class Run:
    """Everything a report shows. ``result`` is None for a run that was interrupted or is still going.

    Attributes:
        resumed: jobs that it continued -> rounds done when each ended.
        kind: of the task, as the bundle named it; empty in runs of an earlier FedMed.
        classes: what the study looked for; empty likewise.
        grid: voxel size in mm on which masks were scored; empty where that is not known.
        steps: what is added from one of its controls to the next, and from the last to the run; none where there is no
            control, the same job in which the sites without labels are left out or learn nothing.
        compared: (site, message) of what did not fit among the sites' images, or why a site told nothing of its own.
        uncompared: sites that were asked for that and whose settings do not allow it.
        control_problems: why controls that are there cannot be compared.
    """

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
    resumed: dict[str, int]
    score: Score
    kind: str
    method: Method
    classes: list[Structure] = field(default_factory=list)
    grid: list[float] = field(default_factory=list)
    compared: list[tuple[str, str]] = field(default_factory=list)
    uncompared: list[str] = field(default_factory=list)
    steps: list[Any] = field(default_factory=list)
    control_problems: list[str] = field(default_factory=list)

    @property
    def has_site_folders(self) -> bool:
        return any(site.folder for site in self.sites)

    @cached_property
    def study(self) -> dict[str, Any]:
        """Plain values of the study, those that are not the default."""
        return study_of_run(self.config)

    @property
    def warm_rounds(self) -> int:
        """First rounds that sites without labels sat out."""
        return int((self.study.get("warm_start") or {}).get("rounds") or 0)

    @property
    def validated(self) -> bool:
        """True where labelled sites score the models of the rounds."""
        return self.study.get("select") != "last"

    @property
    def tested(self) -> bool:
        """True where the sites test the model at the end."""
        return self.study.get("evaluate") is not False

    @property
    def adapts(self) -> bool:
        """True where its sites adapt to their own images."""
        return bool(method_spec(self.study).get("adaptation"))

    def used_labels(self, site: Site) -> bool:
        """True where a site trained on labels, by what it reported: corrected masks may turn up at one without any."""
        return site.role == "supervised" or any(USED_LABELS in line.sites.get(site.name, {}) for line in self.rounds)

    def contributed(self, site: Site) -> tuple[int, int]:
        """In how many of its rounds an update of a site moved the model, and how many these were."""
        warm = self.warm_rounds
        rounds = [line for line in self.rounds if site.role == "supervised" or line.index >= warm]
        moved = [line for line in rounds if line.aggregated and site.name in line.sites]
        return sum(line.coefficients.get(site.name, 1.0) > 0 for line in moved), len(rounds)

    @property
    def idle(self) -> list[Site]:
        """Sites that were to train and of whose updates none moved the model; none before the first round."""
        training = [site for site in self.sites if site.role in ("supervised", "unsupervised")]
        return [site for site in training if (done := self.contributed(site))[1] and not done[0]]

    @property
    def unlabelled(self) -> bool:
        """True where there are labelled sites, and none of them contributed to the model."""
        labelled, idle = self.by_role("supervised"), self.idle
        return bool(labelled) and all(site in idle for site in labelled)

    def by_role(self, role: str) -> list[Site]:
        return [site for site in self.sites if site.role == role]
