"""Train a classifier on an encoder at one hospital, alone, and predict its and another hospital's test images."""

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.bundle import ConfigParser
from torch import Tensor, nn

from fedmed.bundles.load import Bundle
from fedmed.bundles.network import initial_network, parsed, seed_everything
from fedmed.data.cache import CaseCacheDataset, settings_text
from fedmed.errors import JobError
from fedmed.experiments.classifier_plan import ClassifierPlan
from fedmed.federation.site_parser import site_facts
from fedmed.files import write_atomically
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig

BATCH = 256


_IMAGES: dict[tuple, Tensor] = {}


def evaluate(plan: ClassifierPlan, encoder: Mapping[str, Tensor] | None, folder: Path) -> Path:
    """Train and predict, unless that was done before.

    Args:
        plan: what.
        encoder: ``encoder.*`` tensors; None = first weights of the seed.
        folder: where the file is written.

    Returns:
        The file of predictions: ``internal_last``, and where they exist ``internal_highest``, ``external_last`` and
        ``external_highest``, (n, C) float32 in the order of the lists.

    Raises:
        FedMedError: the bundle, the encoder or the images cannot be used.
    """
    path = plan.file(folder)
    if not path.is_file():
        torch.set_num_threads(plan.site.threads)
        found = predictions(plan, encoder, folder)
        write_atomically(path, lambda stream: np.savez(stream, **found))
    return path


def predictions(plan: ClassifierPlan, encoder: Mapping[str, Tensor] | None, folder: Path) -> dict[str, np.ndarray]:
    """Train a classifier; its probabilities for the test images."""
    parser = _parser(plan, folder)
    network = with_encoder(initial_network(parser, plan.seed), encoder)
    if plan.change:
        plan.change(network)
    tests = {"internal": plan.site} | ({"external": plan.external} if plan.external else {})
    images = {test: test_images(site, parser) for test, site in tests.items()}
    found: dict[str, np.ndarray] = {}

    def predict(model: str) -> None:
        found.update({f"{test}_{model}": probabilities(network, own) for test, own in images.items()})

    seed_everything(derive_seed(plan.seed, plan.task, "downstream"))
    trainer = parsed(parser, "train#trainer")
    if plan.every:
        _follow(trainer, plan, predict, found)
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
    parts = {name.partition(".")[0] for name in encoder}  # "encoder", as the bundle calls it
    own = {name: tensor for name, tensor in network.state_dict().items() if name.partition(".")[0] in parts}
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


def _follow(trainer: Engine, plan: ClassifierPlan, predict: Callable[[str], None], found: dict) -> None:
    """Keep the predictions of the epoch with the highest accuracy on the test list, as the paper reports it."""
    labels, best = test_labels(plan.site, plan.classes), [-1.0]

    def look(engine: Engine) -> None:
        last = engine.state.epoch == engine.state.max_epochs
        if engine.state.epoch % plan.every and not last:
            return
        predict("now")
        now = {key.removesuffix("_now"): found.pop(key) for key in list(found) if key.endswith("_now")}
        accuracy = float((now["internal"].argmax(1) == labels).mean())
        if accuracy > best[0]:
            best[0] = accuracy
            found.update({f"{test}_highest": own for test, own in now.items()})

    trainer.add_event_handler(Events.EPOCH_COMPLETED, look)


def test_labels(site: SiteConfig, classes: Sequence[str]) -> np.ndarray:
    """Class indices (n,) of a site's ``testing`` list."""
    listed = json.loads(site.datalist.read_text(encoding="utf-8"))["testing"]
    return np.array([list(classes).index(entry["label"]) for entry in listed])


def _parser(plan: ClassifierPlan, folder: Path) -> ConfigParser:
    site, seed = plan.site, derive_seed(plan.seed, plan.task, plan.draw)
    labels = {"label_fraction": plan.fraction, "fraction_seed": seed, "classes": list(plan.classes)}
    overlays = [*plan.overlays, plan.protocol]
    parser = Bundle(plan.bundle, overlays, {**plan.overrides, **labels}, site.bundles).parser(
        **site_facts(site),
        output_dir=str(folder / "bundle"),
        seed=seed,
        augment_seed=derive_seed(seed, "augmentation"),
    )
    # Nobody chooses a model here: what a validation list is for does not happen.
    parser.update({"train#handlers": [], "validate#handlers": [], "evaluate#handlers": []})
    return parser
