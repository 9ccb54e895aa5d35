"""Findings of a check: a sentence for the hospital's own screen, and fixed words for the page that leaves it.

The page never shows a finding's sentence, which names files and patients: it counts kinds. A kind is one of a closed
list, so nothing that a site wrote can pass through it.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

AREAS = ("data", "training", "disk", "device", "connection")
PROBLEM, NOTE = "problem", "note"

_PROBLEMS = {
    "data": {
        "other_kind": "lists of another kind of task than the job's",
        "entry": "entries of the datalist that are malformed",
        "missing": "listed files that do not exist",
        "list": "lists that the site's role needs and that are empty",
        "unreadable": "images or masks that cannot be read",
        "picture": "images that are damaged or not an X-ray",
        "video": "videos that are damaged or cannot be used",
        "video_labels": "tables or masks that do not fit their video or the job",
        "class": "labels that are not one of the job's classes",
        "two_classes": "images that are listed with two classes",
        "one_class": "lists that need two classes and have one",
        "volume": "images that are not one 3D volume",
        "geometry": "images without a usable voxel size or position",
        "spacing": "images whose voxel size is impossible",
        "values": "images whose voxel values are not those of a CT in HU",
        "memory": "images that do not fit into memory",
        "mask_grid": "masks that lie on another grid than their image",
        "mask_values": "masks with values other than 0 and 1",
        "no_foreground": "training lists without any foreground",
        "patient": "patients in two lists of which one is scored",
        "copy": "scans that are in two lists of which one is scored",
        "data": "other faults of images, masks or lists",
    },
    "training": {
        "bundle": "the job's bundle is missing or cannot be built here",
        "job": "the job does not fit this site",
        "words": "the site's YAML lacks a word that the job's bundle needs, or has one that it does not know",
        "cannot_train": "the job's work cannot be done here",
        "out_of_memory": "the job's batch does not fit into memory",
        "too_long": "the measurement was stopped because it took too long",
    },
    "disk": {
        "cache": "the cache folder cannot be written",
        "workspace": "the workspace cannot be written",
        "no_space": "too little free disk space",
    },
    "device": {"device": "the configured device cannot be used"},
    "connection": {
        "kit": "the startup kit is incomplete or damaged",
        "certificate": "the certificate is not valid",
        "key": "the private key can be read by others",
        "unreachable": "the server cannot be reached",
        "handshake": "server and site do not accept each other's certificate",
        "preflight": "NVFlare's preflight check fails",
        "code": "the kit does not allow that a job brings code, and this one does",
        "limits": "the kit does not make every job apply the site's limits on what it sends",
        "jobs": "the kit lets jobs have configurations that read the site's environment and files",
        "classes": "the kit does not allow the classes that the job uses",
        "wide_list": "the kit lets jobs load more classes than FedMed's jobs use",
        "messages": "the kit takes and sends other messages than those of a job's tasks",
        "logs": "the kit lets NVFlare send error logs to the server",
    },
}
_NOTES = {
    "data": {
        "odd_values": "images with values that look like a picture or a lost offset",
        "empty_mask": "empty masks",
        "moved_mask": "masks whose axes are stored in another order than their image's",
        "two_affines": "images with two affines that differ",
        "twice": "scans that are listed more than once, none of them in a scored list",
        "no_patient": "entries that do not say who the patient is",
        "unused": "images that the site's role does not use",
        "view": "images from the side, or of another part than the chest",
        "odd_video": "videos with frames out of the body, of several sizes, or with phases in an odd order",
        "unused_masks": "videos with masks of frames that the job does not take at its rate",
        "small_picture": "images that are smaller than the network's input",
        "no_class": "classes of the job without a training image",
        "one_sided": "tools or phases that no frame of a list shows, or every frame",
        "no_auroc": "testing lists with images of one class, which give no AUROC",
        "not_scored": "sites without a testing list",
        "few_tested": "testing lists of fewer cases than the site lets scores go of",
        "not_validated": "sites with labels and without a validation list",
    },
    "training": {
        "not_named": "the job does not name the site; it was checked in the role that its lists fit",
        "few_labels": "the job trains on a part of the labelled images",
        "batch": "the site's max_batch_size cuts the job's batch",
        "memory": "memory is nearly used up",
        "extras": "the site's limits keep back values that the job asks for; it trains all the same",
        "few_images": "too few images for the statistics that the job exchanges; the site trains all the same",
    },
    "disk": {
        "little_space": "little free disk space",
        "open_cache": "the cache folder can be read by others; training closes it",
    },
    "device": {"idle_gpu": "a GPU is there and not used", "threads": "more threads than cores"},
    "connection": {
        "ends_soon": "a certificate ends soon",
        "running": "the site is running: not checked by starting it",
        "proxy": "gRPC goes to the server through a proxy",
    },
}


@dataclass(frozen=True)
class SiteFinding:
    """One thing that is wrong or worth a look.

    Attributes:
        area: which check found it, one of ``AREAS``.
        kind: which of the area's kinds it is.
        text: what, where and what to do. It may name files and patients, so it stays at the hospital.
        list: datalist key concerned, if any.
        entry: number of the entry in that list, from 0.
        also: further (list, entry) that it is about.
    """

    area: str
    kind: str
    text: str
    list: str = ""
    entry: int | None = None
    also: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        _ = self.words  # a kind that is not listed above is a mistake in this package

    @property
    def level(self) -> str:
        """``problem`` (must be solved before the site joins) or ``note``."""
        return PROBLEM if self.kind in _PROBLEMS[self.area] else NOTE

    @property
    def words(self) -> str:
        """The kind in fixed words."""
        return _PROBLEMS[self.area].get(self.kind) or _NOTES[self.area][self.kind]


data_finding = partial(SiteFinding, "data")
link_finding = partial(SiteFinding, "connection")


def problems(findings: Sequence[SiteFinding]) -> list[SiteFinding]:
    """Those that must be solved."""
    return [finding for finding in findings if finding.level == PROBLEM]


def count_kinds(findings: Sequence[SiteFinding]) -> list[tuple[str, str, str, int]]:
    """Rows (area, level, fixed words, number), problems first in each area."""
    counts = Counter((f.area, f.level, f.words) for f in findings)
    order = sorted(counts, key=lambda row: (AREAS.index(row[0]), row[1] != PROBLEM, row[2]))
    return [(*row, counts[row]) for row in order]
