"""The weighted mean of differences, exact to the last bit of the model's dtype and independent of thread count."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Elements a block: two float64 blocks are 2 MiB, about a core's cache. An `add_` of float32 onto float64 converts
# element by element and is several times slower than converting a block into scratch memory first.
BLOCK = 131_072


class BlockMean:
    """Computes ``base + sum_k c_k * difference_k`` in float64, block by block, with scratch memory that is reused.

    Beyond its arguments it holds the result and two blocks.
    """

    def __init__(self, block: int = BLOCK) -> None:
        self._sum = torch.empty(block, dtype=torch.float64)
        self._term = torch.empty(block, dtype=torch.float64)

    @torch.no_grad()
    def __call__(
        self, base: Tensor, differences: Sequence[Tensor], coefficients: Sequence[float], exact: bool = False
    ) -> Tensor:
        """Return a new tensor with the shape of ``base``, and its dtype.

        Args:
            base: global tensor, floating point, any shape, on the CPU.
            differences: one tensor of the same shape for each coefficient; they are added in this order.
            coefficients: weight of each difference.
            exact: return float64, as it was computed.
        """
        flat, terms = base.reshape(-1), [difference.reshape(-1) for difference in differences]
        result = torch.empty_like(flat, dtype=torch.float64 if exact else flat.dtype)
        for start in range(0, flat.numel(), len(self._sum)):
            stop = min(start + len(self._sum), flat.numel())
            total, scratch = self._sum[: stop - start], self._term[: stop - start]
            total.copy_(flat[start:stop])
            # Not `add_(..., alpha=)`: torch fuses that into one rounding in some lanes and not in others, and which
            # lane an element falls into depends on the number of threads.
            for term, coefficient in zip(terms, coefficients, strict=True):
                total.add_(scratch.copy_(term[start:stop]).mul_(coefficient))
            result[start:stop].copy_(total)
        return result.view(base.shape)
