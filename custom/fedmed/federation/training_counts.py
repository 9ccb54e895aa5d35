"""What a site trains on in a job, counted as the bundle's training reads it; the counts stay at the site."""

from collections.abc import Mapping

from monai.bundle import ConfigParser

from fedmed.bundles.network import parsed
from fedmed.data.entry_forms import UNLABELED
from fedmed.data.trained_on import TrainedOn, owners
from fedmed.settings.site import SiteConfig


def count_trained(parser: ConfigParser, site: SiteConfig, role: str) -> TrainedOn:
    """Count the images, or videos, that a round reads, with and without their labels, and whose they are.

    A bundle's ``train`` reads the list of the site's role; beside images without labels ``labeled`` reads others.

    Args:
        parser: the bundle's configuration for a task of training.
        site: its settings.
        role: ``supervised`` or ``unsupervised``.

    Raises:
        DataError: a list cannot be read.
        BundleError: a list of the configuration cannot be built.
    """
    files, what = _files(parser, "train")
    listed, others = (owners(site.data_root, site.datalist, key, what) for key in ("training", UNLABELED))
    if role == "supervised":
        return TrainedOn.of(files, [], listed, len(listed), what)
    labelled, _ = _files(parser, "labeled")
    return TrainedOn.of(labelled, files, {**others, **listed}, what=what)


def _files(parser: ConfigParser, part: str) -> tuple[list[str], str]:
    """Files that a part of the configuration reads, and whether they are images or videos."""
    if f"{part}#videos" in parser:
        return [str(name) for name in parsed(parser, f"{part}#videos").names], "video"
    cases = parsed(parser, f"{part}#data") if f"{part}#data" in parser else []
    return [str(case["image"]) for case in cases if isinstance(case, Mapping) and "image" in case], "image"
