"""A linear classifier on the features of a frozen encoder."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from ignite.engine import Events
from torch import Tensor, nn
from torch.utils.data import RandomSampler

from fedmed.engines.supervised import SupervisedEngine
from fedmed.engines.trainer import plain_batch
from fedmed.errors import DataError
from fedmed.seeds import derive_seed


class LinearProbeEngine(SupervisedEngine):
    """Trains ``network.classifier`` alone, on features that are computed once in each run.

    The features of every case, in eval mode and without gradient, are what an encoder that never changes would give
    again in every step. Each step is then a matrix product; parameters and running statistics of the rest of the
    network keep their bits, whatever the optimizer holds.

    Args:
        device, max_epochs: as in :class:`SupervisedEngine`.
        train_data_loader: every training case once, in order and without augmentation, as ``{"image", "label"}``.
        network: has ``features(images)`` (B, F) and ``classifier``, a module (B, F) -> (B, C).
        optimizer: of the classifier's parameters.
        loss_function: of logits (B, C) and labels (B,).
        batch_size: features in a batch.
        seed: of their order; drawn like the cases of :func:`fedmed.data.sampling.training_loader`: without
            replacement until all were seen, and every batch full.
        epoch_length: batches in an epoch; default: as many as ``train_data_loader`` has.
        amp, kwargs: as in :class:`SupervisedEngine`.

    ``engine.state.output`` has ``image`` (the features), ``label``, ``pred`` and the scalar ``loss``.

    Raises:
        DataError: there is no training case, in a run: none with a label.
    """

    def __init__(
        self,
        device: torch.device | str,
        max_epochs: int,
        train_data_loader: Iterable,
        network: nn.Module,
        *args: Any,
        batch_size: int,
        seed: int = 0,
        amp: bool = False,
        **kwargs: Any,
    ) -> None:
        if train_data_loader is None:
            raise DataError("linear probing has no labelled images; list some under 'training'")
        self.batch_size, self.seed = batch_size, seed
        own = {"inferer": lambda features, network: network.classifier(features)}
        super().__init__(device, max_epochs, train_data_loader, network, *args, amp=amp, **{**own, **kwargs})

    def run(self) -> None:  # type: ignore[override]
        """Compute the features, then train ``max_epochs`` epochs on them."""
        order = torch.Generator().manual_seed(derive_seed(self.seed, "order of cases"))
        loader = self.data_loader
        self.data_loader = _Batches(partial(self._features, loader), self.batch_size, self.state.epoch_length, order)
        try:
            super().run()
        finally:
            self.data_loader = loader

    @torch.no_grad()
    def _features(self, loader: Iterable) -> tuple[Tensor, Tensor]:
        """Features float32 (n, F) and labels int64 (n,) of every case, on the device."""
        self.network.eval()
        features, labels = [], []
        for batch in loader:
            self.fire_event(Events.GET_BATCH_STARTED)  # an abort is asked for here
            images, label = plain_batch(batch, self.state.device)
            if label is None:
                raise DataError("linear probing needs cases with a class; load 'training' with its classes")
            with torch.autocast("cuda", enabled=self.amp):
                features.append(self.network.features(images).float())
            labels.append(label)
        if not features:
            raise DataError("linear probing has no labelled images; list some under 'training'")
        return torch.cat(features), torch.cat(labels)


class _Batches:
    """Batches of features, which are computed when the first is asked for: within the run, whose handlers see it."""

    def __init__(
        self, features: Callable[[], tuple[Tensor, Tensor]], batch_size: int, length: int, order: torch.Generator
    ) -> None:
        self.features, self.batch_size, self.length, self.order = features, batch_size, length, order
        self.known: tuple[Tensor, Tensor] | None = None

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        self.known = self.known or self.features()
        images, labels = self.known
        sampler = RandomSampler(labels, num_samples=self.length * self.batch_size, generator=self.order)
        for places in torch.tensor(list(sampler)).split(self.batch_size):
            places = places.to(labels.device)
            yield {"image": images[places], "label": labels[places]}
