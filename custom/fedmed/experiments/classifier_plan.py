"""One classifier to train on an encoder, and the name of the file of its predictions."""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from fedmed import __version__
from fedmed.bundles.load import Bundle
from fedmed.experiments.site_lists import state_of_files
from fedmed.settings.site import SiteConfig


@dataclass(frozen=True)
class ClassifierPlan:
    """One classifier to train and test.

    Attributes:
        task: name.
        site: the task's hospital, with a datalist of ``training`` and ``testing``.
        external: the other hospital, with ``testing`` alone; None = no such test.
        classes: of the task.
        bundle, overlays, overrides: what is trained, without classes and labels.
        protocol: overlay that makes a training of the bundle one of this kind, ``linear`` or ``finetune``.
        every: epochs between two scorings on the test list, for the model of the highest accuracy; None = no such one.
        change: what is done to the network before it is trained; None = nothing.
        fraction: share of the training labels.
        draw: which choice of them.
        seed: of first weights, order and augmentation.
    """

    task: str
    site: SiteConfig
    external: SiteConfig | None
    classes: tuple[str, ...]
    bundle: str
    overlays: tuple[str, ...]
    overrides: Mapping[str, Any]
    protocol: str
    every: int | None
    change: Callable[[nn.Module], None] | None
    fraction: float
    draw: int
    seed: int

    def file(self, folder: Path) -> Path:
        """Where the predictions lie: named by a hash of all that they depend on besides the encoder."""
        own = {k: v for k, v in asdict(self).items() if k not in ("site", "external", "protocol", "every", "change")}
        lists = [_state(site) for site in (self.site, self.external) if site is not None]
        digest = _digest(self.bundle, self.overlays)
        kind = f"{self.change.__module__}.{self.change.__name__}" if self.change else self.protocol
        made_of = [own, kind, self.every, lists, digest, self.site.device, self.site.threads, __version__]
        name = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
        return folder / f"{self.task}-{self.protocol}-{self.fraction:g}-{name}.npz"


_STATES: dict[Path, list[str]] = {}  # looked at once a process: a table asks thousands of times


def _state(site: SiteConfig) -> list[str]:
    """What a site's list says, and size and time of change of its images."""
    if site.datalist not in _STATES:  # its name is a hash of its content
        _STATES[site.datalist] = [site.datalist.name, state_of_files(site), str(site.data_root)]
    return _STATES[site.datalist]


@cache
def _digest(bundle: str, overlays: tuple[str, ...]) -> str:
    return Bundle(bundle, overlays).digest
