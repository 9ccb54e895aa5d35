"""One classifier to train on an encoder, its configuration, and the name of the file of its predictions."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser
from torch import nn

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.find import package_digest
from fedmed.federation.opened_model import site_facts
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig
from research.runner.class_tasks import Question
from research.runner.site_lists import state_of_files


@dataclass(frozen=True)
class ClassifierPlan:
    """One classifier to train and test."""

    question: Question
    bundle: str
    overlays: Sequence[str]  # before that of the protocol
    overrides: Mapping[str, Any]  # of the bundle's settings, without classes and labels
    protocol: str  # overlay that makes a training of the bundle one of this kind
    every: int | None  # epochs between two scorings on the test list, for the model of the highest accuracy
    change: Callable[[nn.Module], None] | None  # done to the network before it is trained
    fraction: float  # share of the training labels
    draw: int  # which choice of them
    seed: int  # of first weights, order and augmentation

    @property
    def site(self) -> SiteConfig:
        """The hospital that it is trained at."""
        return self.question.tests["internal"].site

    def file(self, folder: Path) -> Path:
        """File of the predictions, named by a hash of all that they depend on besides the encoder."""
        names = ("bundle", "overlays", "overrides", "fraction", "draw", "seed")
        depends = {name: getattr(self, name) for name in names}
        depends |= {"task": self.question.name, "classes": self.question.task.classes}
        lists = [_state(test.site) for test in self.question.tests.values()]
        digest = _digest(self.bundle, tuple(self.overlays))
        kind = f"{self.change.__module__}.{self.change.__name__}" if self.change else self.protocol
        made_of = [depends, kind, self.every, lists, digest, self.site.device, self.site.threads, package_digest()]
        name = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
        return folder / f"{self.question.name}-{self.protocol}-{self.fraction:g}-{name}.npz"

    def parser(self, folder: Path) -> ConfigParser:
        """The bundle's configuration; ``folder`` is where it may write."""
        site, question = self.site, self.question
        seed = derive_seed(self.seed, question.name, self.draw)
        labels = {"label_fraction": self.fraction, "fraction_seed": seed, "classes": list(question.task.classes)}
        overlays = [*self.overlays, self.protocol]
        parser = Bundle(self.bundle, overlays, {**self.overrides, **labels}, site.bundles).parser(
            **site_facts(site),
            output_dir=str(folder / "bundle"),
            seed=seed,
            augment_seed=derive_seed(seed, "augmentation"),
        )
        # Nobody chooses a model here: what a validation list is for does not happen.
        parser.update({"train#handlers": [], "validate#handlers": [], "evaluate#handlers": []})
        return parser


_STATES: dict[Path, list[str]] = {}  # looked at once a process: a table asks thousands of times


def _state(site: SiteConfig) -> list[str]:
    """State of a site: its list, and size and time of change of its images."""
    if site.datalist not in _STATES:  # its name is a hash of its content
        _STATES[site.datalist] = [site.datalist.name, state_of_files(site), str(site.data_root)]
    return _STATES[site.datalist]


@cache
def _digest(bundle: str, overlays: tuple[str, ...]) -> str:
    return Bundle(bundle, overlays).digest
