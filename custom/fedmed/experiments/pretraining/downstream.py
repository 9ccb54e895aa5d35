"""Train a classifier on an encoder at one hospital, alone, and predict its and another hospital's test images."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.bundle import ConfigParser
from torch import Tensor, nn

from fedmed import __version__
from fedmed.bundles.load import Bundle
from fedmed.bundles.network import initial_network, parsed, seed_everything
from fedmed.data.cache import CaseCacheDataset, settings_text
from fedmed.errors import JobError
from fedmed.experiments.pretraining.arms import Protocol
from fedmed.experiments.pretraining.grey_levels import read_grey_levels
from fedmed.experiments.pretraining.scores import TESTS
from fedmed.experiments.sites import state_of_files
from fedmed.federation.site_parser import site_facts
from fedmed.files import write_atomically
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig

ENCODER = "encoder."
BATCH = 256


@dataclass(frozen=True)
class Evaluation:
    """One classifier to train and test.

    Attributes:
        task: name.
        site: the task's hospital, with a datalist of ``training`` and ``testing``.
        external: the other hospital, with ``testing`` alone; None = no such test.
        classes: of the task.
        bundle, overlays, overrides: what is trained, without classes and labels.
        protocol: linear or fine-tuning.
        grey_levels: whether grey levels take the encoder's place.
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
    protocol: Protocol
    grey_levels: bool
    fraction: float
    draw: int
    seed: int

    def file(self, folder: Path) -> Path:
        """Where the predictions lie: named by a hash of all that they depend on besides the encoder."""
        own = {k: v for k, v in asdict(self).items() if k not in ("site", "external", "protocol", "grey_levels")}
        every = self.protocol.every if self.protocol.kind == "finetune" else None
        lists = [_state(site) for site in (self.site, self.external) if site is not None]
        digest = _digest(self.bundle, self.overlays)
        kind = "grey levels" if self.grey_levels else self.protocol.kind
        made_of = [own, kind, every, lists, digest, self.site.device, self.site.threads, __version__]
        name = hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:16]
        return folder / f"{self.task}-{self.protocol.kind}-{self.fraction:g}-{name}.npz"


_IMAGES: dict[tuple, Tensor] = {}
_STATES: dict[Path, list[str]] = {}  # looked at once a process: a table asks thousands of times


def _state(site: SiteConfig) -> list[str]:
    """What a site's list says, and size and time of change of its images."""
    if site.datalist not in _STATES:  # its name is a hash of its content
        _STATES[site.datalist] = [site.datalist.name, state_of_files(site), str(site.data_root)]
    return _STATES[site.datalist]


@cache
def _digest(bundle: str, overlays: tuple[str, ...]) -> str:
    return Bundle(bundle, overlays).digest


def evaluate(evaluation: Evaluation, encoder: Mapping[str, Tensor] | None, folder: Path) -> Path:
    """Train and predict, unless that was done before.

    Args:
        evaluation: what.
        encoder: ``encoder.*`` tensors; None = first weights of the seed.
        folder: where the file is written.

    Returns:
        The file of predictions: ``internal_last``, and where they exist ``internal_highest``, ``external_last`` and
        ``external_highest``, (n, C) float32 in the order of the lists.

    Raises:
        FedMedError: the bundle, the encoder or the images cannot be used.
    """
    path = evaluation.file(folder)
    if not path.is_file():
        torch.set_num_threads(evaluation.site.threads)
        found = predictions(evaluation, encoder, folder)
        write_atomically(path, lambda stream: np.savez(stream, **found))
    return path


def predictions(evaluation: Evaluation, encoder: Mapping[str, Tensor] | None, folder: Path) -> dict[str, np.ndarray]:
    """Train a classifier; its probabilities for the test images."""
    parser = _parser(evaluation, folder)
    network = with_encoder(initial_network(parser, evaluation.seed), encoder)
    if evaluation.grey_levels:
        read_grey_levels(network)
    tests = {"internal": evaluation.site} | ({"external": evaluation.external} if evaluation.external else {})
    images = {test: test_images(site, parser) for test, site in tests.items()}
    found: dict[str, np.ndarray] = {}

    def predict(model: str) -> None:
        found.update({f"{test}_{model}": probabilities(network, own) for test, own in images.items()})

    seed_everything(derive_seed(evaluation.seed, evaluation.task, "downstream"))
    trainer = parsed(parser, "train#trainer")
    if evaluation.protocol.kind == "finetune":
        _follow(trainer, evaluation, predict, found)
    trainer.run()
    predict("last")
    return found


def with_encoder(network: nn.Module, encoder: Mapping[str, Tensor] | None) -> nn.Module:
    """Put a pre-trained encoder into a network; all of its tensors, and no others.

    Raises:
        JobError: names or shapes differ.
    """
    if encoder is None:
        return network
    own = {name: tensor for name, tensor in network.state_dict().items() if name.startswith(ENCODER)}
    if {n: t.shape for n, t in own.items()} != {n: t.shape for n, t in encoder.items()}:
        raise JobError("the pre-trained encoder does not fit the downstream network; use the same overlays for both")
    network.load_state_dict(dict(encoder), strict=False)
    return network


def test_images(site: SiteConfig, parser: ConfigParser) -> Tensor:
    """Images (n, 1, H, W) of a site's ``testing`` list, prepared as the bundle does; read once a process."""
    transform = parsed(parser, "validate#preprocessing")
    key = (site.datalist, site.data_root, settings_text(transform.flatten().transforms))
    if key not in _IMAGES:
        listed = json.loads(site.datalist.read_text(encoding="utf-8"))["testing"]
        cases = [{"image": str(site.data_root / entry["image"])} for entry in listed]
        dataset = CaseCacheDataset(cases, transform, site.cache_dir)
        _IMAGES[key] = torch.stack([dataset[place]["image"] for place in range(len(cases))])
    return _IMAGES[key]


@torch.no_grad()
def probabilities(network: nn.Module, images: Tensor) -> np.ndarray:
    """Class probabilities (n, C) float32 in eval mode; the network's mode stays."""
    training, device = network.training, next(network.parameters()).device
    network.eval()
    found = [network.probabilities(network(batch.to(device))).cpu() for batch in images.split(BATCH)]
    network.train(training)
    return torch.cat(found).float().numpy()


def _follow(trainer: Engine, evaluation: Evaluation, predict: Callable[[str], None], found: dict) -> None:
    """Keep the predictions of the epoch with the highest accuracy on the test list, as the paper reports it."""
    labels, best = test_labels(evaluation.site, evaluation.classes), [-1.0]

    def look(engine: Engine) -> None:
        last = engine.state.epoch == engine.state.max_epochs
        if engine.state.epoch % evaluation.protocol.every and not last:
            return
        predict("now")
        now = {test: found.pop(f"{test}_now") for test in TESTS if f"{test}_now" in found}
        accuracy = float((now["internal"].argmax(1) == labels).mean())
        if accuracy > best[0]:
            best[0] = accuracy
            found.update({f"{test}_highest": own for test, own in now.items()})

    trainer.add_event_handler(Events.EPOCH_COMPLETED, look)


def test_labels(site: SiteConfig, classes: Sequence[str]) -> np.ndarray:
    """Class indices (n,) of a site's ``testing`` list."""
    listed = json.loads(site.datalist.read_text(encoding="utf-8"))["testing"]
    return np.array([list(classes).index(entry["label"]) for entry in listed])


def _parser(evaluation: Evaluation, folder: Path) -> ConfigParser:
    site, seed = evaluation.site, derive_seed(evaluation.seed, evaluation.task, evaluation.draw)
    labels = {"label_fraction": evaluation.fraction, "fraction_seed": seed, "classes": list(evaluation.classes)}
    overlays = [*evaluation.overlays, evaluation.protocol.kind]
    parser = Bundle(evaluation.bundle, overlays, {**evaluation.overrides, **labels}, site.bundles).parser(
        **site_facts(site),
        output_dir=str(folder / "bundle"),
        seed=seed,
        augment_seed=derive_seed(seed, "augmentation"),
    )
    # Nobody chooses a model here: what a validation list is for does not happen.
    parser.update({"train#handlers": [], "validate#handlers": [], "evaluate#handlers": []})
    return parser
