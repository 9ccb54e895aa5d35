"""Base of kinds of task: words of model card and label server, ranges of the numbers that sites report."""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.bundles.score import Score
from fedmed.data.datalist import UnlabelledEntry
from fedmed.errors import BundleError

SLACK = 1e-6  # of a mean in float32, which may be a little above 1


@dataclass(frozen=True)
class Proposal:
    """An answer of MONAI Label.

    Attributes:
        task: the word in a bundle's folder name from which MONAI Label knows the task.
        scores: whether it is a score for each class of the whole image; otherwise it is a mask.
        together: of scores, whether several classes may hold at once, each called from the bundle's ``threshold`` on;
            otherwise the likeliest one is called.
    """

    task: str
    scores: bool = False
    together: bool = False


MASKS = Proposal("segmentation")
SCORES = Proposal("classification", scores=True)
SEVERAL = Proposal("classification", scores=True, together=True)
PROPOSALS = (MASKS, SCORES)  # of bundles that name no kind; their tasks are all that MONAI Label's clients understand


@dataclass(frozen=True)
class CardWords:
    """Words of a model card.

    Attributes:
        how_to_run: template in ``export/templates`` that says how it is used.
        labels: what sites with labels have.
        case: what is counted.
        sample: what a site counts of its training list, where that is something else, as frames of videos.
        unfit: what it must not be used for, and what it needs.
        output: what comes out; ``{names}`` stands for the names of the channels.
        inputs: of what a folder is that the model is run on: ``images`` or ``videos``.
        numbered: whether those names stand with their values, as of a label map.
        trained: what sites with labels do, for the table of sites.
        task, values: of a model of other classes than its bundle's own: what it does, and what the values of its result
            are; ``{names}`` and ``{modality}`` stand for theirs. Empty where the bundle's words name no class.
    """

    how_to_run: str
    labels: str
    case: str
    unfit: str
    output: str
    inputs: str = "images"
    numbered: bool = False
    trained: str = "trained with"
    sample: str = ""
    task: str = ""
    values: str = ""

    def part(self, role: str, contributed: int | None = None) -> str:
        """A site's part in the training.

        Args:
            role: its role.
            contributed: rounds in which its update moved the model; None where that is not known.
        """
        if role == "evaluate":
            return "none, tested only"
        if contributed == 0:
            return f"none: no update of this site {'with' if role == 'supervised' else 'without'} {self.labels} counted"
        return f"{self.trained if role == 'supervised' else 'trained without'} {self.labels}"

    def channels(self, names: list[tuple[str, str]]) -> str:
        """Words for what comes out, from (value, name) of each channel."""
        shown = (f"{value} = {name}" if self.numbered else name for value, name in names)
        return self.output.format(names=", ".join(shown))


@dataclass(frozen=True)
class Range:
    """From ``low`` to ``high``, both included; every number is finite.

    Attributes:
        whole: whether only whole numbers are meant.
    """

    low: float = -math.inf
    high: float = math.inf
    whole: bool = False

    def holds(self, value: object) -> bool:
        """Tell whether a value is a number and lies in it; NaN and infinity lie in none."""
        slack = 0 if self.whole else SLACK
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
            return False
        return self.low - slack <= value <= self.high + slack and not (self.whole and value != int(value))

    def __str__(self) -> str:
        """In words, after "it must be"."""
        what = "a whole number" if self.whole else "a number"
        if math.isfinite(self.high):
            return f"{what} from {self.low:g} to {self.high:g}"
        return f"{what}, {self.low:g} or more" if math.isfinite(self.low) else "a finite number"


ANY, SHARE, AMOUNT, COUNT = Range(), Range(0, 1), Range(0), Range(0, whole=True)
OF_EVERY_KIND: Mapping[str, Range] = {
    **dict.fromkeys(("seconds", "clip_norm", "noise_multiplier", "epsilon", "val_temperature", "gain_error"), AMOUNT),
    **dict.fromkeys(("n_cases", "n_frames", "min_cases"), COUNT),
    **dict.fromkeys(("delta", "gain_p"), SHARE),
    **dict.fromkeys(("gain_patients", "gain_better"), COUNT),
    "model_round": Range(-1, whole=True),
}


@dataclass(frozen=True)
class Kind:
    """A kind of task. A bundle names it in ``configs/federation.yaml``; an overlay may name another.

    Rooms above this one work with classes of their own, which a kind names by path; they are imported when asked for.

    Args:
        base: of a kind that an overlay names, the bundle's own; its images are opened and shown as that one's.
        images: what an image is, one of :attr:`readers`, as the bundle says; empty = the first of them.

    Attributes:
        labelled: whether sites train and score with labels. Without, no list but those of training counts.
        both_lists: whether a site without labels, in the same job, learns from ``training`` too when it has some.
        scores: of a testing list; the first is what models are compared by unless the bundle says another.
        distances: names of those scores that are 0 or more; all others lie in 0 to 1.
        counted: how the names of :meth:`numbers` begin that are counts.
        settings: ids that the bundle's configuration must have for this kind -> what they are.
        readers: what an image may be, such as ``volume`` -> class path of what a site's check opens and lists then:
            :class:`fedmed.checks.inspection.Inspection`.
        measures: the same words -> path of the function that looks at one image for a site's fingerprint, see
            :mod:`fedmed.data.fingerprint`; without, a site of this kind tells its counts and memory alone.
        report: class path, what a report shows: :class:`fedmed.reports.run_report.RunReport`.
        exporter: class path, what an export does: :class:`fedmed.export.exporter.Exporter`.
        tells: what :meth:`numbers` say about a site, for its data-protection officer, as a sentence.
        card: the words of its model card.
        proposal: what MONAI Label answers with it; None = it cannot be served.
        gain: path of a function, what a hospital gains: :func:`fedmed.reports.hospital_gain.hospital_gain`.
    """

    base: "Kind | None" = None
    images: str = ""

    labelled: ClassVar[bool] = True
    both_lists: ClassVar[bool] = False
    scores: ClassVar[tuple[Score, ...]] = ()
    distances: ClassVar[tuple[str, ...]] = ()
    counted: ClassVar[tuple[str, ...]] = ("n_",)
    settings: ClassVar[Mapping[str, str]] = {}
    readers: ClassVar[Mapping[str, str]] = {}
    measures: ClassVar[Mapping[str, str]] = {}
    report: ClassVar[str] = ""
    exporter: ClassVar[str] = ""
    tells: ClassVar[str] = ""
    card: ClassVar[CardWords]
    proposal: ClassVar[Proposal | None] = None
    gain: ClassVar[str] = "fedmed.reports.hospital_gain.hospital_gain"

    def __post_init__(self) -> None:
        if self.images and self.images not in self.readers:
            known = ", ".join(self.readers) or "nothing"
            raise BundleError(f"'images' is '{self.images}'; {type(self).__name__} reads {known}")

    def form(self, classes: Sequence[str] | None = None) -> UnlabelledEntry:
        """Form of an entry of a datalist.

        Args:
            classes: names of the job's classes, if it has some.
        """
        raise NotImplementedError

    def looks_like(self, labelled: Sequence[Mapping[str, Any]], unlabelled: Sequence[Mapping[str, Any]]) -> bool:
        """Tell whether the entries of a site look like this kind; asked only where no job says the kind.

        Args:
            labelled: entries of all lists with labels.
            unlabelled: the others.
        """
        return False

    def validation_error(self, classes: Sequence[str]) -> str:
        """Say why a model of this kind cannot have these classes; empty where it can, or names none."""
        return ""

    def numbers(self, classes: Sequence[str]) -> tuple[str, ...]:
        """Numbers that a site sends of its testing list beside scores and number of cases, such as counts a class."""
        return ()

    def ranges(self, score: Score, classes: Sequence[str]) -> dict[str, Range]:
        """Metric of a validation or testing list -> in which range it must lie.

        Args:
            score: the bundle's.
            classes: names of the job's classes.
        """
        ranges = dict(OF_EVERY_KIND)
        for name in self.numbers(classes):
            far = name.startswith(tuple(f"{distance}_" for distance in self.distances))
            ranges[name] = COUNT if name.startswith(self.counted) else AMOUNT if far else SHARE
        for one in (*self.scores, score):
            ranges |= dict.fromkeys([one.validation, *one.tested], AMOUNT if one.name in self.distances else SHARE)
        return ranges

    @property
    def inspects(self) -> str:
        """Class path of the inspection: that of its images, or of its base.

        Raises:
            BundleError: it has neither.
        """
        if self.readers:
            return self.readers[self.images or next(iter(self.readers))]
        if self.base is None:
            name = type(self).__name__
            raise BundleError(f"the kind {name} opens images as another does; name it in an overlay, not for a bundle")
        return self.base.inspects

    @property
    def looks(self) -> tuple[str, str]:
        """An image's word, and the path of its function in :attr:`measures`; "" where kind and base have none."""
        if self.readers or self.base is None:
            image = self.images or next(iter(self.readers), "")
            return image, self.measures.get(image, "")
        return self.base.looks

    def further_scores(self, score: Score) -> tuple[Score, ...]:
        """Scores of a testing list that are reported beside the one by which models are compared."""
        return tuple(other for other in self.scores if other.name != score.name)
