"""Attention of a frame's windows over windows of the frames before it, all windows at once."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .windows import into_windows, out_of_windows, relative_positions, seen_tokens

# Added to the scores of tokens outside of the map; the predecessor's -100 is outweighed by scores that grow large.
OUTSIDE = -1e4


class TemporalAttention(nn.Module):
    """F* of Fang et al. 2025 (arXiv), Eq. 3-4, after coarse-to-fine feature mining (Sun et al., CVPR 2022).

    Each window of the newest frame attends to tokens round it in every frame. Those of an older frame stand for larger
    blocks of pixels, and reach further. A block that the edge of the map cuts is filled by repeating the edge.

    Args:
        width: c, channels of the maps.
        heads: they divide the channels.
        window: s, pixels of a window's side.
        regions: r, pixels of the side of what a window sees in each frame, the oldest first.
        pools: p, pixels of the side of a token's block in each frame; they divide the regions.
        cffm_block: use the predecessor's whole block: a projection after attention, then a feed-forward part.
        pre_norm: put LayerNorm before attention, as the predecessor does; Eq. 4 has none. Its block always does.

    Attributes:
        reaches: r / p of each frame, tokens that a window sees along an axis.

    Raises:
        ValueError: lists of different lengths, or numbers that do not divide one another.
    """

    def __init__(
        self,
        width: int,
        heads: int = 8,
        window: int = 7,
        regions: Sequence[int] = (49, 20, 6, 7),
        pools: Sequence[int] = (7, 4, 2, 1),
        cffm_block: bool = False,
        pre_norm: bool = True,
    ) -> None:
        super().__init__()
        _check(width, heads, window, regions, pools)
        self.heads, self.window, self.frame_pools = heads, window, tuple(pools)
        self.reaches = tuple(region // pool for region, pool in zip(regions, pools, strict=True))
        self.norm = nn.LayerNorm(width) if pre_norm or cffm_block else nn.Identity()
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.pools = nn.ModuleList(nn.Conv2d(1, 1, pool, stride=pool) for pool in pools)
        self.tables = nn.ParameterList(torch.empty(heads, (window + reach - 1) ** 2) for reach in self.reaches)
        for number, reach in enumerate(self.reaches):
            self.register_buffer(f"rows_{number}", relative_positions(window, reach), persistent=False)
        self.block = FeedForward(width) if cffm_block else None
        self._initialise()

    def _initialise(self) -> None:
        for linear in (self.query, self.key, self.value):
            nn.init.trunc_normal_(linear.weight, std=0.02)
            nn.init.zeros_(linear.bias)
        for pool in self.pools:
            nn.init.constant_(pool.weight, 1 / pool.weight.numel())
            nn.init.zeros_(pool.bias)
        for table in self.tables:
            nn.init.trunc_normal_(table, std=0.02)

    def forward(self, frames: Tensor) -> Tensor:
        """F* (B, C, h, w) of the newest frame, of maps (B, frames, C, h, w), the oldest first."""
        batch, count, width, height, across = frames.shape
        if count != len(self.pools):
            raise ValueError(f"{count} frames for attention over {len(self.pools)}")
        normed = self.norm(frames.movedim(2, -1)).movedim(-1, 2)
        queries = self.query(into_windows(normed[:, -1], self.window))
        keys, values = self.context(normed)
        weights = self.weights(queries, keys, self.bias(height, across))
        attended = (weights @ self._split(values)).transpose(2, 3).flatten(3)  # Eq. 4
        attended = out_of_windows(attended, self.window, height, across)
        return frames[:, -1] + attended if self.block is None else self.block(frames[:, -1], attended)

    def context(self, normed: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values (B, windows, tokens, C) of what each window sees in maps (B, frames, C, h, w); Eq. 3.

        A key is made once for each token, not once for each window that sees it.
        """
        parts = []
        for number, reach in enumerate(self.reaches):
            pooled = self.pooled(normed[:, number], number).movedim(1, -1)
            both = torch.cat([self.key(pooled), self.value(pooled)], dim=-1)
            down, across = (self._seen(number, side, both) for side in normed.shape[3:])
            rows = both.index_select(1, down.clamp(0, both.shape[1] - 1).flatten())
            cut = rows.index_select(2, across.clamp(0, both.shape[2] - 1).flatten())
            cut = cut.unflatten(2, (-1, reach)).unflatten(1, (-1, reach)).transpose(2, 3)
            parts.append(cut.flatten(3, 4).flatten(1, 2))
        keys, values = torch.cat(parts, dim=2).chunk(2, dim=-1)
        return keys, values

    def pooled(self, maps: Tensor, number: int) -> Tensor:
        """Tokens (B, C, ⌈h / p⌉, ⌈w / p⌉) of a frame's maps (B, C, h, w): one linear map of blocks for all channels."""
        pool, linear = self.frame_pools[number], self.pools[number]
        fill = (0, -maps.shape[3] % pool, 0, -maps.shape[2] % pool)
        filled = F.pad(maps, fill, mode="replicate") if any(fill) else maps
        # Blocks do not overlap, so this is the convolution of each channel, some ten times as fast on a CPU.
        blocks = filled.movedim(1, -1).unflatten(2, (-1, pool)).unflatten(1, (-1, pool))
        tokens = torch.einsum("bhpwqc,pq->bhwc", blocks, linear.weight[0, 0]) + linear.bias
        return tokens.movedim(-1, 1)

    def bias(self, height: int, across: int) -> Tensor:
        """B and the mask: (windows, heads, window², tokens), added to the scores of a map of this size."""
        parts = []
        for number, table in enumerate(self.tables):
            inside = []
            for side in (height, across):
                seen = self._seen(number, side, table)
                inside.append((seen >= 0) & (seen < -(-side // self.frame_pools[number])))
            both = inside[0][:, None, :, None] & inside[1][None, :, None, :]
            outside = torch.where(both.flatten(2).flatten(0, 1), 0.0, OUTSIDE).to(table.dtype)
            parts.append(table[:, getattr(self, f"rows_{number}")] + outside[:, None, None])
        return torch.cat(parts, dim=-1)

    def weights(self, queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
        """softmax(Q Kᵀ / √d_h + B): (B, windows, heads, window², tokens); each row adds up to 1."""
        q, k = self._split(queries), self._split(keys)
        return torch.softmax(q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2) + bias, dim=-1)

    def _split(self, tokens: Tensor) -> Tensor:
        """(B, windows, tokens, C) -> (B, windows, heads, tokens, C / heads)."""
        return tokens.unflatten(-1, (self.heads, -1)).transpose(2, 3)

    def _seen(self, number: int, side: int, like: Tensor) -> Tensor:
        return seen_tokens(side, self.window, self.frame_pools[number], self.reaches[number], like.device)


class FeedForward(nn.Module):
    """Layers after attention in the predecessor's block: projection, residual sum, LayerNorm, two linear layers."""

    def __init__(self, width: int, expansion: int = 4) -> None:
        super().__init__()
        self.projection, self.norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.inner = nn.Sequential(nn.Linear(width, expansion * width), nn.GELU(), nn.Linear(expansion * width, width))

    def forward(self, newest: Tensor, attended: Tensor) -> Tensor:
        """Maps (B, C, h, w) before attention and what it found -> (B, C, h, w)."""
        x = newest.movedim(1, -1) + self.projection(attended.movedim(1, -1))
        return (x + self.inner(self.norm(x))).movedim(-1, 1)


def _check(width: int, heads: int, window: int, regions: Sequence[int], pools: Sequence[int]) -> None:
    given = f"width {width}, heads {heads}, window {window}, regions {list(regions)}, pools {list(pools)}"
    if len(regions) != len(pools) or not regions or min(width, heads, window, *regions, *pools) < 1:
        raise ValueError(f"{given}: give one region and one pool a frame, and whole numbers of at least 1")
    if width % heads or any(region % pool for region, pool in zip(regions, pools, strict=True)):
        raise ValueError(f"{given}: the heads must divide the width, and each pool its region")
