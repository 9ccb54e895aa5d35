"""A linear classifier on the features of a frozen encoder."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

import torch
from ignite.engine import Engine, Events
from torch import Tensor, nn

from fedmed.errors import DataError
from fedmed.seeds import derive_seed
from fedmed.training.trainer import SupervisedEngine, plain_batch

CONVERGED = 1e-10  # change of the objective in an iteration, below which no further one is made
EVALUATIONS = 30  # of the objective in an iteration
NO_IMAGES = "linear probing has no labelled images; list some under 'training'"


class FrozenEncoderEngine(SupervisedEngine):
    """Trains ``network.classifier`` alone, on features that are computed once in each run, in eval mode.

    The rest of the network is not changed by a single bit.

    Args:
        device, max_epochs, args, kwargs: as in :class:`SupervisedEngine`; ``amp`` is for the encoder.
        train_data_loader: every training case once, without augmentation, as ``{"image", "label"}``. The network has
            ``features(images)`` (B, F) and ``classifier``, an ``nn.Linear``.

    Raises:
        DataError: there is no training case; during a run: none has a label.
    """

    takes_corrections = False

    def __init__(
        self, device: torch.device | str, max_epochs: int, train_data_loader: Iterable | None, *args: Any, **kwargs: Any
    ) -> None:
        if train_data_loader is None:
            raise DataError(NO_IMAGES)
        super().__init__(device, max_epochs, train_data_loader, *args, **kwargs)

    def run(self) -> None:  # type: ignore[override] # as in StatefulTrainer
        loader = self.data_loader
        self.data_loader = self._batches(self._features(loader))
        try:
            super().run()
        finally:
            self.data_loader = loader

    def _batches(self, cases: dict[str, Tensor]) -> Iterable[dict[str, Tensor]]:
        """Batches of the iterations, of the features (n, F) and labels (n,) of all cases."""
        raise NotImplementedError

    @torch.no_grad()
    def _features(self, loader: Iterable) -> dict[str, Tensor]:
        """Features float32 (n, F) and labels int64 (n,) of every case, on the device."""
        self.network.eval()
        network, features, labels = cast("Any", self.network), [], []
        for batch in loader:
            self.fire_event(Events.GET_BATCH_STARTED)  # an aborted job stops here
            images, label = plain_batch(batch, self.state.device)
            if label is None:
                raise DataError("linear probing needs cases with a class; load 'training' with its classes")
            with torch.autocast("cuda", enabled=self.amp):
                features.append(network.features(images).float())
            labels.append(label)
        if not features:
            raise DataError(NO_IMAGES)
        return {"image": torch.cat(features), "label": torch.cat(labels)}


class LinearProbeEngine(FrozenEncoderEngine):
    """Fits the best ``network.classifier`` to the features, by L-BFGS.

    Each iteration is one of L-BFGS (strong Wolfe line search, float64) over all cases for

        mean loss + weight_decay / 2 · (‖W‖² + ‖b‖²),

    where W and b are for standardised features: less their mean, divided by one number, the root of their mean
    variance. Otherwise a comparison of encoders would show the scale of their features: random weights give a spread
    of 0.01, pre-trained ones of 0.4. With cross-entropy there is exactly one best classifier, found from any start,
    also where a class has no case. ``network.classifier`` always holds the weights for the original features.

    Args:
        args, kwargs: as in :class:`FrozenEncoderEngine`. The optimizer is not used, L-BFGS has no settings here; the
            loss is of logits (n, C) float64 and labels (n,); ``epoch_length`` are the iterations of an epoch, by
            default as many as the loader has batches. Once the objective changes by less than 1e-10, the rest cost
            nothing.
        weight_decay: above 0.

    ``engine.state.output`` has ``image`` (the features), ``label``, ``pred`` (logits at the iteration's start) and the
    scalar ``loss``, the objective there.
    """

    def __init__(self, *args: Any, weight_decay: float = 0.2, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.weight_decay = weight_decay

    def _batches(self, cases: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        network = cast("Any", self.network)
        self.fit = _Fit(cases, network.classifier, self.loss_function, self.weight_decay)
        return [cases]  # in every iteration

    def _iteration(self, engine: Engine, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {**batch, **self.fit.step()}


class _Fit:
    """L-BFGS on standardised features; after every step the classifier has the weights for the original features."""

    def __init__(self, batch: Mapping[str, Tensor], classifier: nn.Linear, loss: Callable, decay: float) -> None:
        features, self.labels = batch["image"].double(), batch["label"]
        self.mean = features.mean(0)
        variance = (features - self.mean).square().mean()
        self.scale = torch.where(variance > 0, variance.sqrt(), 1.0)  # a single case has none
        self.inputs = (features - self.mean) / self.scale
        self.classifier, self.loss, self.decay = classifier, loss, decay
        weight, bias = classifier.weight.detach().double(), classifier.bias.detach().double()
        self.weight = (weight * self.scale).requires_grad_()
        self.bias = (bias + weight @ self.mean).requires_grad_()
        limits = {"max_iter": 1, "max_eval": EVALUATIONS}  # without the latter torch allows a line search of one step
        self.optimizer = torch.optim.LBFGS([self.weight, self.bias], line_search_fn="strong_wolfe", **limits)
        self.output: dict[str, Tensor] = {}
        self.converged = False

    def step(self) -> dict[str, Tensor]:
        """One iteration; the logits and the objective that it began with."""
        if self.converged:
            return self.output
        with torch.no_grad():
            logits = self._logits()
        loss = self.optimizer.step(self._objective).detach()
        self.converged = bool(self.output) and bool(abs(self.output["loss"] - loss) < CONVERGED)
        self.output = {"pred": logits, "loss": loss}
        self._write()
        return self.output

    def _logits(self) -> Tensor:
        return nn.functional.linear(self.inputs, self.weight, self.bias)

    def _objective(self) -> Tensor:
        self.optimizer.zero_grad()
        size = self.weight.square().sum() + self.bias.square().sum()
        loss = self.loss(self._logits(), self.labels) + self.decay / 2 * size
        loss.backward()
        return loss

    @torch.no_grad()
    def _write(self) -> None:
        weight = self.weight / self.scale
        self.classifier.weight.copy_(weight)
        self.classifier.bias.copy_(self.bias - weight @ self.mean)


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
