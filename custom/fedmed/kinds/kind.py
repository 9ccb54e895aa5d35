"""What every kind of task has: the base of the classes in this folder, a file each."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from fedmed.bundles.score import Score
from fedmed.data.datalist import ImageAlone
from fedmed.errors import BundleError
from fedmed.kinds.label_server import Proposal
from fedmed.kinds.model_card import CardWords
from fedmed.kinds.ranges import AMOUNT, COUNT, OF_EVERY_KIND, SHARE, Range


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
        report: class path, what a report shows: :class:`fedmed.reports.run_report.RunReport`.
        exporter: class path, what an export does: :class:`fedmed.export.exporter.Exporter`.
        tells: what :meth:`numbers` say about a site, for its data-protection officer, as a sentence.
        card: the words of its model card.
        proposal: what MONAI Label answers with it; None = it cannot be served.
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
    report: ClassVar[str] = ""
    exporter: ClassVar[str] = ""
    tells: ClassVar[str] = ""
    card: ClassVar[CardWords]
    proposal: ClassVar[Proposal | None] = None

    def __post_init__(self) -> None:
        if self.images and self.images not in self.readers:
            known = ", ".join(self.readers) or "nothing"
            raise BundleError(f"'images' is '{self.images}'; {type(self).__name__} reads {known}")

    def form(self, classes: Sequence[str] | None = None) -> ImageAlone:
        """How an entry of a datalist looks.

        Args:
            classes: names of the job's classes, if it has some.
        """
        raise NotImplementedError

    def looks_like(self, labelled: Sequence[Mapping[str, Any]], unlabelled: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the entries of a site look like this kind; asked only where no job says the kind.

        Args:
            labelled: entries of all lists with labels.
            unlabelled: the others.
        """
        return False

    def misfit(self, classes: Sequence[str]) -> str:
        """Why a model of this kind cannot have these classes, as a sentence; empty where it can, or names none."""
        return ""

    def numbers(self, classes: Sequence[str]) -> tuple[str, ...]:
        """What a site sends of its testing list beside the scores and the number of cases, such as counts a class."""
        return ()

    def ranges(self, score: Score, classes: Sequence[str]) -> dict[str, Range]:
        """Metric of a validation or testing list -> in which range it must lie.

        Args:
            score: the bundle's.
            classes: names of the job's classes.
        """
        found = dict(OF_EVERY_KIND)
        for name in self.numbers(classes):
            far = name.startswith(tuple(f"{distance}_" for distance in self.distances))
            found[name] = COUNT if name.startswith(self.counted) else AMOUNT if far else SHARE
        for one in (*self.scores, score):
            found |= dict.fromkeys([one.validation, *one.tested], AMOUNT if one.name in self.distances else SHARE)
        return found

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

    def beside(self, score: Score) -> tuple[Score, ...]:
        """Scores of a testing list that are reported beside the one by which models are compared."""
        return tuple(other for other in self.scores if other.name != score.name)
