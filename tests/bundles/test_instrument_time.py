"""Attention over time: which tokens a window sees, equations by hand, and a slow reference pixel by pixel."""

import math

import pytest
import torch
from instrument_nets import temporal_attention
from instrument_nets.temporal_attention import TemporalAttention
from instrument_nets.windows import (
    into_windows,
    out_of_windows,
    relative_positions,
    seen_tokens,
    window_count,
)
from torch.testing import assert_close

SMALL = {"window": 4, "regions": (12, 6, 3, 4), "pools": (4, 2, 1, 1)}


def attention(width=8, heads=2, **options):
    torch.manual_seed(0)
    return TemporalAttention(width, heads, **{**SMALL, **options}).eval()


def plain(width, pools, reach=1):
    """One head, window 1, linear layers that change nothing, all tables 0."""
    made = TemporalAttention(width, 1, 1, [reach * p for p in pools], pools, pre_norm=False)
    for linear in (made.query, made.key, made.value):
        torch.nn.init.eye_(linear.weight)
    for table in made.tables:
        torch.nn.init.zeros_(table)
    return made


@pytest.mark.parametrize(
    ("pool", "reach", "tokens"), [(7, 7, range(-2, 5)), (4, 5, range(0, 5)), (2, 3, range(4, 7)), (1, 7, range(7, 14))]
)
def test_a_window_sees_tokens_round_its_middle(pool, reach, tokens):
    assert seen_tokens(28, 7, pool, reach)[1].tolist() == list(tokens)


def test_tokens_outside_of_the_map_are_masked():
    made = TemporalAttention(8, 2)
    bias = made.bias(28, 28).detach()
    inside = (bias[5, 0, 0] > -100).split([49, 25, 9, 49])  # window (1, 1)
    assert [int(part.sum()) for part in inside] == [4 * 4, 5 * 5, 3 * 3, 7 * 7]
    weights = made.weights(torch.randn(1, 16, 49, 8) * 30, torch.randn(1, 16, 132, 8) * 30, bias)
    assert weights[(bias < -100).expand_as(weights)].max() < 1e-30
    assert_close(weights.sum(-1), torch.ones(1, 16, 2, 49))


def test_windows_of_a_map_that_they_do_not_divide():
    assert window_count(64, 7) * window_count(80, 7) == 120
    maps = torch.randn(2, 3, 64, 80)
    cut = into_windows(maps, 7)
    assert cut.shape == (2, 120, 49, 3)
    assert_close(cut[:, 13].unflatten(1, (7, 7)), maps[:, :, 7:14, 7:14].permute(0, 2, 3, 1))
    assert not cut[:, 11, 3 * 7 + 3 :: 7].any()  # columns 80 to 83 are filled up
    assert_close(out_of_windows(cut, 7, 64, 80), maps)


@pytest.mark.parametrize(
    ("options", "tokens"), [({}, 49 + 25 + 9 + 49), (SMALL, 9 + 9 + 9 + 16)], ids=["published", "small"]
)
def test_context_and_tables_have_the_published_sizes(options, tokens):
    made = TemporalAttention(8, 2, **options)
    keys, values = made.context(torch.randn(1, 4, 8, 9, 16))
    windows = window_count(9, made.window) * window_count(16, made.window)
    assert keys.shape == values.shape == (1, windows, tokens, 8)
    assert [tuple(table.shape) for table in made.tables] == [(2, (made.window + r - 1) ** 2) for r in made.reaches]
    if not options:
        assert [table.shape[1] for table in made.tables] == [169, 121, 81, 169]


def test_blocks_are_pooled_to_their_mean_at_first():
    made = attention(width=1, heads=1)
    assert_close(made.pooled(torch.arange(16.0).view(1, 1, 4, 4), 1)[0, 0], torch.tensor([[2.5, 4.5], [10.5, 12.5]]))
    with torch.no_grad():
        made.pools[1].weight.copy_(torch.tensor([[1.0, 0], [0, 2]])[None, None])
    assert_close(made.pooled(torch.arange(16.0).view(1, 1, 4, 4), 1)[0, 0], torch.tensor([[10.0, 16], [34, 40]]))
    # a block that the edge cuts repeats the edge: 2 and 5 in the upper row, then 8 alone
    assert_close(made.pooled(torch.tensor([[[[1.0, 2], [4, 5], [7, 8]]]]), 1)[0, 0], torch.tensor([[11.0], [23.0]]))


@pytest.mark.parametrize(
    ("shift", "weights"), [(0.0, (0.66976155, 0.33023845)), (math.log(2), (0.50348984, 0.49651016))]
)
def test_one_query_by_hand(shift, weights):
    made = plain(2, (1, 1))
    torch.nn.init.constant_(made.tables[0], shift)  # the older frame holds [0, 1], the newest [1, 0]
    got = made(torch.tensor([[0.0, 1], [1, 0]]).view(1, 2, 2, 1, 1))
    assert_close(got.flatten(), torch.tensor([1 + weights[0], weights[1]]), atol=1e-7, rtol=0)


def reference(made, frames):
    """F* of one clip (frames, C, h, w), query by query and token by token."""
    count, width, height, across = frames.shape
    normed, size, result = made.norm(frames.movedim(1, -1)), made.window, frames[-1].clone()
    for y in range(height):
        for x in range(across):
            scores, values = [], []
            for i, (p, reach) in enumerate(zip(made.frame_pools, made.reaches, strict=True)):
                top, left = (math.floor((size * (at // size) + size / 2) / p) - reach // 2 for at in (y, x))
                for a in range(reach):
                    for b in range(reach):
                        if not (0 <= (top + a) * p < height and 0 <= (left + b) * p < across):
                            continue
                        token = made.pools[i].bias.expand(width)
                        for dy in range(p):
                            for dx in range(p):
                                place = min((top + a) * p + dy, height - 1), min((left + b) * p + dx, across - 1)
                                token = token + made.pools[i].weight[0, 0, dy, dx] * normed[i][place]
                        q, k = (v.view(made.heads, -1) for v in (made.query(normed[-1, y, x]), made.key(token)))
                        row = (y % size - a + reach - 1) * (size + reach - 1) + x % size - b + reach - 1
                        scores.append((q * k).sum(1) / math.sqrt(q.shape[1]) + made.tables[i][:, row])
                        values.append(made.value(token).view(made.heads, -1))
            weights = torch.softmax(torch.stack(scores), dim=0)
            result[:, y, x] += (weights[..., None] * torch.stack(values)).sum(0).flatten()
    assert count == len(made.reaches)
    return result


@pytest.mark.parametrize("size", [(5, 7), (3, 2)])
def test_all_windows_at_once_equal_a_loop_over_pixels(size):
    made = attention(width=4).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
        frames = torch.randn(2, 4, 4, *size, dtype=torch.float64)
        assert_close(made(frames), torch.stack([reference(made, clip) for clip in frames]))


def test_equal_frames_at_one_scale_count_as_one():
    four = attention(regions=(4, 4, 4, 4), pools=(1, 1, 1, 1))
    one = attention(regions=(4,), pools=(1,))
    one.load_state_dict({n: t for n, t in four.state_dict().items() if not n.startswith(("pools", "tables"))}, False)
    for made in (four, one):
        for table in made.tables:
            torch.nn.init.zeros_(table)
    maps = torch.randn(2, 1, 8, 6, 7)
    assert_close(four(maps.expand(-1, 4, -1, -1, -1)), one(maps))


def test_every_past_frame_counts():
    made, frames = attention(), torch.randn(1, 4, 8, 8, 8)
    for number in range(3):
        changed = frames.clone()
        changed[:, number] += torch.randn(8, 8, 8)
        assert not torch.allclose(made(changed), made(frames))


def test_each_frame_and_head_has_positions_of_its_own():
    rows = relative_positions(4, 3)
    assert rows.shape == (16, 9) and set(rows.flatten().tolist()) == set(range(36))
    assert rows[0, 8] == 0 and rows[15, 0] == 35  # the first query and the last token, and the reverse
    made = attention()
    bias = made.bias(8, 8)
    assert_close(bias[0, 1, :, 9:18][:, -1], made.tables[1][1, rows[:, -1]])
    made(torch.randn(1, 4, 8, 8, 8)).sum().backward()
    assert all(parameter.grad is not None for parameter in made.parameters())


def test_padded_queries_leave_no_trace(monkeypatch):
    """Whatever fills the windows that reach over the edge, the map and its gradient are the same bit for bit."""
    made, frames = attention(), torch.randn(2, 4, 8, 5, 5, requires_grad=True)
    changed = []

    def filled(maps, window):
        outside = into_windows(torch.ones_like(maps), window) == 0
        changed.append(int(outside.sum()))
        return into_windows(maps, window) + outside * 100 * torch.randn(outside.shape)

    def outcome():
        got = made(frames)
        return got.detach(), *torch.autograd.grad(got.square().sum(), [frames, made.query.weight])

    usual = outcome()
    monkeypatch.setattr(temporal_attention, "into_windows", filled)
    assert usual[0].shape == (2, 8, 5, 5) and all(torch.equal(a, b) for a, b in zip(usual, outcome(), strict=True))
    assert changed == [2 * (8 * 8 - 5 * 5) * 8]


def test_the_predecessors_block_adds_a_projection_and_a_feed_forward_part():
    made, frames = attention(cffm_block=True), torch.randn(1, 4, 8, 8, 8)
    names = set(made.state_dict()) - set(attention().state_dict())
    assert names == {f"block.{n}.{p}" for n in ("projection", "norm", "inner.0", "inner.2") for p in ("weight", "bias")}
    for linear in (made.block.projection, made.block.inner[2]):
        torch.nn.init.zeros_(linear.weight), torch.nn.init.zeros_(linear.bias)
    assert_close(made(frames), frames[:, -1])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"pools": (4, 2, 1)}, "one region and one pool a frame"),
        ({"pools": (5, 2, 1, 1)}, "each pool its region"),
        ({"heads": 3}, "heads must divide the width"),
        ({"window": 0}, "at least 1"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        attention(**options)
    with pytest.raises(ValueError, match="3 frames for attention over 4"):
        attention()(torch.randn(1, 3, 8, 8, 8))
