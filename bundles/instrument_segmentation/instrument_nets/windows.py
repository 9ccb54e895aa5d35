"""Places of the windows of a map, and tokens of a frame that each of them sees, by arithmetic on positions alone."""

import torch
from torch import Tensor


def window_count(side: int, window: int) -> int:
    """Windows along a side that is filled up to a multiple of the window."""
    return -(-side // window)


def seen_tokens(side: int, window: int, pool: int, reach: int, device: torch.device | None = None) -> Tensor:
    """Pooled tokens that each window sees along one axis: (windows, reach), also such as lie outside of the map.

    Window j begins at ``floor((window · j + window / 2) / pool) − floor(reach / 2)`` (Sun et al., CVPR 2022), so that
    its tokens lie round its middle.

    Args:
        side: pixels of the map along the axis.
        window: pixels of a window.
        pool: pixels that one token stands for.
        reach: tokens that a window sees.
    """
    numbers = torch.arange(window_count(side, window), device=device)
    starts = (2 * window * numbers + window).div(2 * pool, rounding_mode="floor") - reach // 2
    return starts[:, None] + torch.arange(reach, device=device)


def relative_positions(window: int, reach: int) -> Tensor:
    """Row of the table of relative positions, of each query and token: (window², reach²)."""
    apart = torch.arange(window)[:, None] - torch.arange(reach) + reach - 1
    width = window + reach - 1
    rows = apart[:, None, :, None] * width + apart[None, :, None, :]
    return rows.reshape(window**2, reach**2)


def into_windows(maps: Tensor, window: int) -> Tensor:
    """Tokens of each window: (B, C, h, w) -> (B, windows, window², C), the map filled up with zeros below and right."""
    batch, width = maps.shape[:2]
    down, across = (window_count(side, window) for side in maps.shape[2:])
    fill = (0, across * window - maps.shape[3], 0, down * window - maps.shape[2])
    cut = torch.nn.functional.pad(maps, fill).reshape(batch, width, down, window, across, window)
    return cut.permute(0, 2, 4, 3, 5, 1).reshape(batch, down * across, window**2, width)


def out_of_windows(tokens: Tensor, window: int, height: int, width: int) -> Tensor:
    """The inverse of :func:`into_windows`: (B, windows, window², C) -> (B, C, height, width), the filling left out."""
    down, across = window_count(height, window), window_count(width, window)
    cut = tokens.reshape(tokens.shape[0], down, across, window, window, -1).permute(0, 5, 1, 3, 2, 4)
    return cut.reshape(tokens.shape[0], -1, down * window, across * window)[:, :, :height, :width]
