"""The logits and labels of every case of an evaluation."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from ignite.engine import Engine, Events
from torch import Tensor, nn

from fedmed.engines.evaluation import plain
from fedmed.errors import DataError, FedMedError


class Collected:
    """Logits and labels of all cases of an evaluator's run, on the CPU, in the order in which they came.

    The evaluator's output is a batch or a list of cases with ``pred`` (C,), the network's logits, and ``label``, the
    index of the class.
    """

    def __init__(self) -> None:
        self._logits: list[Tensor] = []
        self._labels: list[Tensor] = []

    def attach(self, engine: Engine, done: Callable[[Engine], None] | None = None) -> None:
        """Add to an evaluator; ``done`` is called at the end of its run."""
        engine.add_event_handler(Events.EPOCH_STARTED, self._clear)
        engine.add_event_handler(Events.ITERATION_COMPLETED, self._add)
        if done is not None:
            engine.add_event_handler(Events.EPOCH_COMPLETED, done)

    def __len__(self) -> int:
        return sum(len(labels) for labels in self._labels)

    @property
    def logits(self) -> Tensor:
        """float32 (n, C)."""
        return torch.cat(self._logits) if self._logits else torch.zeros(0, 0)

    @property
    def labels(self) -> Tensor:
        """int64 (n,)."""
        return torch.cat(self._labels) if self._labels else torch.zeros(0, dtype=torch.int64)

    def probabilities(self, network: nn.Module) -> Tensor:
        """float64 (n, C): by ``network.probabilities(logits)`` where the network has it, otherwise by softmax.

        In double precision, so that cases of which the model is almost certain keep their order.

        Raises:
            DataError: NaN or infinite logits; names the number of the first such case.
        """
        logits = self.logits
        bad = torch.nonzero(~torch.isfinite(logits).all(dim=1)).flatten().tolist() if len(logits) else []
        if bad:
            raise DataError(
                f"the model's output is NaN or infinite for {len(bad)} of {len(logits)} cases, first for case number "
                f"{bad[0]}; use another checkpoint, or correct the images if only a few are affected"
            )
        if not hasattr(network, "probabilities"):
            return torch.softmax(logits.double(), dim=1)
        device = next(network.parameters()).device
        with torch.no_grad():
            return network.probabilities(logits.double().to(device)).cpu()

    def _clear(self) -> None:
        self._logits.clear()
        self._labels.clear()

    def _add(self, engine: Engine) -> None:
        output = engine.state.output
        batch = output if isinstance(output, Mapping) else _batch(output)
        logits, labels = plain(batch["pred"]).detach().cpu().float(), torch.as_tensor(batch["label"]).cpu()
        if logits.ndim != 2 or labels.shape != logits.shape[:1]:
            raise FedMedError(
                f"classification: logits {tuple(logits.shape)} and labels {tuple(labels.shape)}; use (B, C) and (B,)"
            )
        self._logits.append(logits)
        self._labels.append(labels.long())


def _batch(cases: list[dict[str, Any]]) -> dict[str, Any]:
    return {"pred": torch.stack([plain(c["pred"]) for c in cases]), "label": torch.tensor([c["label"] for c in cases])}
