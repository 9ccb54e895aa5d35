"""The logits and labels of every case of an evaluation."""

from collections.abc import Mapping
from typing import Any

import torch
from ignite.handlers import EpochOutputStore
from torch import Tensor

from fedmed.data.cases import plain
from fedmed.errors import DataError, FedMedError
from fedmed.training.called_classes import probabilities


class Collected(EpochOutputStore):
    """Logits and labels of all cases of an evaluator's run, on the CPU, in the order in which they came.

    The evaluator's output is a batch or a list of cases with ``pred`` (C,), the network's logits, and ``label``, the
    index of the class.
    """

    def __init__(self) -> None:
        super().__init__(_logits_and_labels)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def logits(self) -> Tensor:
        """float32 (n, C)."""
        return torch.cat([logits for logits, _ in self.data]) if self.data else torch.zeros(0, 0)

    @property
    def labels(self) -> Tensor:
        """int64 (n,)."""
        return torch.cat([labels for _, labels in self.data]) if self.data else torch.zeros(0, dtype=torch.int64)

    def probabilities(self, network: Any) -> Tensor:
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
        device = next(network.parameters()).device
        with torch.no_grad():
            return probabilities(network, logits.double().to(device)).cpu()


def _logits_and_labels(output: Any) -> tuple[Tensor, Tensor]:
    if isinstance(output, Mapping):
        logits, labels = plain(output["pred"]), torch.as_tensor(output["label"])
    else:
        logits = torch.stack([plain(case["pred"]) for case in output])
        labels = torch.tensor([case["label"] for case in output])
    if logits.ndim != 2 or labels.shape != logits.shape[:1]:
        raise FedMedError(
            f"classification: logits {tuple(logits.shape)} and labels {tuple(labels.shape)}; use (B, C) and (B,)"
        )
    return logits.detach().cpu().float(), labels.cpu().long()
