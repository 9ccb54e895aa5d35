"""Train a classifier on an encoder at one hospital, alone, and predict its and another hospital's test images."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ignite.engine import Engine, Events
from monai.bundle import ConfigParser
from torch import Tensor, nn

from fedmed.bundles.bundle_parser import initial_network, parsed, seed_everything
from fedmed.data.cache import CaseCacheDataset, settings_text
from fedmed.errors import JobError
from fedmed.seeds import derive_seed
from fedmed.settings.site import SiteConfig
from research.runner.class_tasks import ClassTest
from research.runner.classifier_plan import ClassifierPlan
from research.runner.site_lists import listed

BATCH = 256
_IMAGES: dict[tuple[Any, ...], Tensor] = {}  # test images, read once a process


def predictions(plan: ClassifierPlan, encoder: Mapping[str, Tensor] | None, folder: Path) -> dict[str, np.ndarray]:
    """Train a classifier and predict the test images.

    Args:
        plan: what.
        encoder: its tensors, with their names in the whole model; None = first weights of the seed.
        folder: where the bundle may write.

    Returns:
        ``<test>_last``, and ``<test>_highest`` of a plan with ``every`` -> probabilities (n, C) float32, in the order
        of the test's cases.

    Raises:
        FedMedError: the bundle, the encoder or the images cannot be used.
    """
    parser = plan.parser(folder)
    network = with_encoder(initial_network(parser, plan.seed), encoder)
    if plan.change:
        plan.change(network)
    images = {name: _test_images(test.site, parser) for name, test in plan.question.tests.items()}
    results: dict[str, np.ndarray] = {}

    def predict(model: str) -> None:
        results.update({f"{test}_{model}": _probabilities(network, batches) for test, batches in images.items()})

    seed_everything(derive_seed(plan.seed, plan.question.name, "downstream"))
    trainer = parsed(parser, "train#trainer")
    if plan.every:
        _follow(trainer, plan.every, plan.question.tests["internal"], predict, results)
    trainer.run()
    predict("last")
    return results


def with_encoder(network: nn.Module, encoder: Mapping[str, Tensor] | None) -> nn.Module:
    """Put a pre-trained encoder into a network; all of its tensors, and no others.

    Raises:
        JobError: names or shapes differ.
    """
    if encoder is None:
        return network
    parts = {name.partition(".")[0] for name in encoder}  # "encoder", as the bundle calls it
    tensors = {name: tensor for name, tensor in network.state_dict().items() if name.partition(".")[0] in parts}
    if {n: t.shape for n, t in tensors.items()} != {n: t.shape for n, t in encoder.items()}:
        raise JobError("the pre-trained encoder does not fit the downstream network; use the same overlays for both")
    network.load_state_dict(dict(encoder), strict=False)
    return network


def _test_images(site: SiteConfig, parser: ConfigParser) -> Tensor:
    """Images (n, 1, H, W) of a site's ``testing`` list, prepared as the bundle does."""
    transform = parsed(parser, "validate#preprocessing")
    key = (site.datalist, site.data_root, settings_text(transform.flatten().transforms))
    if key not in _IMAGES:
        cases = [{"image": str(site.data_root / entry["image"])} for entry in listed(site.datalist, "testing")]
        dataset = CaseCacheDataset(cases, transform, site.cache_dir)
        _IMAGES[key] = torch.stack([dataset[place]["image"] for place in range(len(cases))])
    return _IMAGES[key]


@torch.no_grad()
def _probabilities(network: Any, images: Tensor) -> np.ndarray:
    """Class probabilities (n, C) float32 in eval mode; the network's mode stays."""
    training, device = network.training, next(network.parameters()).device
    network.eval()
    parts = [network.probabilities(network(batch.to(device))).cpu() for batch in images.split(BATCH)]
    network.train(training)
    return torch.cat(parts).float().numpy()


def _follow(
    trainer: Engine, every: int, test: ClassTest, predict: Callable[[str], None], results: dict[str, np.ndarray]
) -> None:
    """Keep the predictions of the epoch with the highest accuracy on the test list, as the paper reports it."""
    labels, best = np.array([list(test.classes).index(label) for label in test.labels]), -1.0

    def look(engine: Engine) -> None:
        nonlocal best
        last = engine.state.epoch == engine.state.max_epochs
        if engine.state.epoch % every and not last:
            return
        predict("now")
        now = {key.removesuffix("_now"): results.pop(key) for key in list(results) if key.endswith("_now")}
        accuracy = float((now["internal"].argmax(1) == labels).mean())
        if accuracy > best:
            best = accuracy
            results.update({f"{name}_highest": rows for name, rows in now.items()})

    trainer.add_event_handler(Events.EPOCH_COMPLETED, look)
