"""Which values to compare so that a few rows of numbers come out sorted at every coordinate at once."""

from collections.abc import Collection

Comparator = tuple[int, int]  # (i, j), i < j: afterwards row i holds the smaller value and row j the larger one


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
    return _needed(comparators, range(n) if wanted is None else wanted)


def _needed(comparators: list[Comparator], wanted: Collection[int]) -> list[Comparator]:
    needed, kept = set(wanted), []
    for i, j in reversed(comparators):
        if i in needed or j in needed:
            kept.append((i, j))
            needed |= {i, j}
    return kept[::-1]
