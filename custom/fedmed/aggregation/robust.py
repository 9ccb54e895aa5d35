"""Means that a few wrong sites cannot move at will: coordinate-wise median and trimmed mean (Yin et al. 2018).

D. Yin, Y. Chen, K. Ramchandran, P. Bartlett: Byzantine-Robust Distributed Learning: Towards Optimal Statistical Rates,
ICML 2018, Definitions 1 and 2. Both are the mean of the middle of the sorted values, so one computation serves both.
"""

import math
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from fedmed.errors import JobError

RULES = ("mean", "median", "trimmed_mean")
TRIM = 0.2
# Elements a block and sender: the rows of ten sites in float64 stay within a core's cache. Element-wise operations on
# so few elements run on one thread; being exact or element-wise, they would give the same on any number.
BLOCK = 32_768
Comparator = tuple[int, int]  # (i, j), i < j: afterwards row i holds the smaller value and row j the larger one


class RobustAggregator:
    """Computes ``base`` plus the mean of the middle of the senders' sorted differences, at every coordinate.

    Every sender has one vote: neither its steps nor a user weight counts, since a bound on the *number* of wrong sites
    is all that these rules rest on.

    Args:
        rule: ``median`` (for an even number of senders the mean of the two middle values, as numpy's) or
            ``trimmed_mean``.
        trim: fraction of the senders that is dropped at each end, [0, 0.5); the number is rounded **up**, so that any
            fraction above 0 drops one sender at least. None: 0.2; only for ``trimmed_mean``.

    Raises:
        JobError: an unknown rule, a fraction out of range, or one given for a rule that has none.
    """

    def __init__(self, rule: str, trim: float | None = None) -> None:
        if rule not in RULES[1:]:
            raise JobError(f"rule {rule!r} is unknown; use {', '.join(RULES)}")
        if trim is not None and rule != "trimmed_mean":
            raise JobError(f"'trim' is for rule 'trimmed_mean' only; leave it out for '{rule}'")
        trim = TRIM if trim is None else trim
        if isinstance(trim, bool) or not isinstance(trim, (int, float)) or not 0 <= trim < 0.5:
            raise JobError(f"'trim' is {trim!r}; give the fraction to drop at each end, 0 or more and below 0.5")
        self.rule, self.trim = rule, float(trim)
        self._scratch = torch.empty(0, dtype=torch.float64)

    def check_with(self, normalise: bool, user_weights: Mapping[str, float], buffers: str) -> None:
        """Refuse, by JobErrors that name them, arguments that only have a meaning for a weighted mean."""
        for site, weight in user_weights.items():
            if weight not in (0, 1):
                raise JobError(
                    f"user weight of site '{site}' is {weight}; under rule '{self.rule}' every sender has one vote: "
                    "remove the weight, leave the site out with 0, or use rule 'mean'"
                )
        if not normalise:
            raise JobError(f"'normalise: false' is Eq. 3's weighting, which '{self.rule}' does not use; set it to true")
        if buffers == "pooled":
            raise JobError(
                f"buffers 'pooled' needs the weights of a mean; with rule '{self.rule}' use 'average' or 'local'"
            )

    def dropped(self, senders: int) -> int:
        """Return how many values are dropped at each end."""
        if self.rule == "median":
            return (senders - 1) // 2
        return math.ceil(round(self.trim * senders, 9))  # 0.28 * 25 is 7.000000000000001

    def check_senders(self, what: str, senders: int) -> None:
        """Refuse, by a JobError, so few senders that nothing would be left, or the median would be a mean.

        Args:
            what: is sent by them, for the error: "tensor 'x'".
            senders: how many.
        """
        sent = f"{what} is sent by {senders} {'site' if senders == 1 else 'sites'}"
        if self.rule == "median" and senders < 3:
            raise JobError(
                f"{sent}; a median needs 3, with fewer any one of them can move it anywhere; "
                "let more sites train, or use rule 'mean' with 'clip_norm'"
            )
        if 2 * (cut := self.dropped(senders)) >= senders:
            raise JobError(
                f"{sent}, and trim {self.trim:g} drops {cut} at each end, which leaves none; "
                "let more sites train, lower 'trim', or use rule 'mean' with 'clip_norm'"
            )

    @torch.no_grad()
    def __call__(self, name: str, base: Tensor, differences: Sequence[Tensor], factors: Sequence[float]) -> Tensor:
        """Return a new tensor with the shape and dtype of ``base``; scratch memory is 256 KiB a sender.

        Args:
            name: of the tensor, for errors.
            base: global tensor, floating point, any shape, on the CPU.
            differences: one tensor of the same shape for each sender, all finite.
            factors: multiplies each difference; 1 unless it is clipped.

        Raises:
            JobError: too few senders.
        """
        count = len(differences)
        self.check_senders(f"tensor '{name}'", count)
        cut = self.dropped(count)
        comparators = sorting_network(count, range(cut, count - cut))
        flat, terms = base.reshape(-1), [difference.reshape(-1) for difference in differences]
        if self._scratch.numel() < (count + 1) * BLOCK:
            self._scratch = torch.empty((count + 1) * BLOCK, dtype=torch.float64)
        rows = self._scratch[: (count + 1) * BLOCK].view(count + 1, BLOCK)
        result = torch.empty_like(flat)
        for start in range(0, flat.numel(), BLOCK):
            stop = min(start + BLOCK, flat.numel())
            *values, spare = [row[: stop - start] for row in rows]
            for value, term, factor in zip(values, terms, factors, strict=True):
                value.copy_(term[start:stop]).mul_(factor)
            for i, j in comparators:
                torch.minimum(values[i], values[j], out=spare)
                torch.maximum(values[i], values[j], out=values[j])
                values[i], spare = spare, values[i]
            total = values[cut]
            for value in values[cut + 1 : count - cut]:
                total.add_(value)
            result[start:stop].copy_(total.div_(count - 2 * cut).add_(spare.copy_(flat[start:stop])))
        return result.view(base.shape)


@torch.no_grad()
def middle_counter(base: Tensor, differences: Sequence[Tensor]) -> Tensor:
    """Return ``base`` plus the senders' (lower) median difference of an integer counter, exact, same shape and dtype.

    A maximum, as the mean takes, would let one site set any number.
    """
    return base + torch.stack(list(differences)).median(dim=0).values


def sorting_network(n: int, wanted: Collection[int] | None = None) -> list[Comparator]:
    """Return comparators that sort ``n`` rows: Batcher's merge exchange (Knuth, TAOCP vol. 3, 5.2.2, algorithm M).

    Each step is the same for all coordinates, so whole blocks of tensors are compared at once; sorting coordinate by
    coordinate is about ten times slower.

    Args:
        n: number of rows, 1 or more.
        wanted: ranks (0 is the smallest) that must be right; comparators that only serve others are left out. None
            sorts all.
    """
    comparators = []
    top = 1 << max(0, (n - 1).bit_length() - 1)
    p = top
    while p and n > 1:
        q, r, d = top, 0, p
        while True:
            comparators += [(i, i + d) for i in range(n - d) if i & p == r]
            if q == p:
                break
            q, r, d = q // 2, p, q - p
        p //= 2
    needed, kept = set(range(n) if wanted is None else wanted), []
    for i, j in reversed(comparators):
        if i in needed or j in needed:
            kept.append((i, j))
            needed |= {i, j}
    return kept[::-1]
