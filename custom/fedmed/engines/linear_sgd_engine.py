"""A linear classifier on the features of a frozen encoder, by SGD."""

from collections.abc import Iterator, Mapping
from typing import Any, cast

import torch
from ignite.engine import Engine
from torch import Tensor

from fedmed.engines.linear_probe_engine import FrozenEncoderEngine
from fedmed.seeds import derive_seed


class LinearSgdEngine(FrozenEncoderEngine):
    """Trains ``network.classifier`` by mini-batches, on features as they are: the published protocol.

    He et al. 2020 (arXiv 1911.05722, section 4.1) and, with 50 epochs at a rate of 0.1, Dong and Voiculescu 2021 (arXiv
    2109.07504). It compares the scales of features as much as encoders, see :class:`LinearProbeEngine`.

    Args:
        args, kwargs: as in :class:`FrozenEncoderEngine`. The optimizer is of the classifier's parameters.
        batch_size: cases in a batch; the last one of a pass may be smaller.
        seed: of the order of the cases, another one in every pass.

    ``engine.state.output`` has ``image`` (the features), ``label``, ``pred`` (logits) and the scalar ``loss``.
    """

    def __init__(self, *args: Any, batch_size: int = 64, seed: int = 0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.batch_size = batch_size
        self.order = torch.Generator().manual_seed(derive_seed(seed, "order of features"))

    def _batches(self, cases: dict[str, Tensor]) -> "_MiniBatches":
        return _MiniBatches(cases, self.batch_size, self.order)

    def _iteration(self, engine: Engine, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        self.optimizer.zero_grad(set_to_none=True)
        pred = cast("Any", self.network).classifier(batch["image"])
        loss = self.loss_function(pred, batch["label"])
        self.backward(loss)
        self.step(self.optimizer)
        return {**batch, "pred": pred.detach(), "loss": loss.detach()}


class _MiniBatches:
    """All cases in an order that is drawn anew for each pass."""

    def __init__(self, cases: Mapping[str, Tensor], size: int, generator: torch.Generator) -> None:
        self.cases, self.size, self.generator = cases, size, generator

    def __len__(self) -> int:
        return -(-len(self.cases["label"]) // self.size)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        labels = self.cases["label"]
        for rows in torch.randperm(len(labels), generator=self.generator).to(labels.device).split(self.size):
            yield {name: tensor[rows] for name, tensor in self.cases.items()}
