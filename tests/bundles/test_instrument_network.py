"""The network for instruments as a whole: published sizes, parts, pictures, clips, streams, sides that do not fit."""

import sys

import pytest
import torch
from instrument_nets.encoder import PvtEncoder
from instrument_nets.instrument_net import InstrumentNet
from instrument_nets.levels import level_for
from instrument_nets.prepared import prepare_network
from instrument_nets.stream import FrameStream
from torch.testing import assert_close

SMALL = {"dims": (8, 16, 32), "depths": (1, 1, 1), "heads": (1, 2, 4), "reductions": (4, 2, 1), "expansions": (2, 2, 2)}
SMALL |= {"rsc_level": 1, "window": 4, "regions": (12, 6, 3, 4), "pools": (4, 2, 1, 1), "pyramid": 16}
SMALL |= {"segmentation": 16, "groups": 4, "indicator": (1.0, -1.0, 0.5)}


def network(**options):
    torch.manual_seed(0)
    return InstrumentNet(4, **{**SMALL, **options}).eval()


@pytest.fixture(scope="module")
def small():
    made = network()
    with torch.no_grad():  # at first attention over time adds almost nothing
        made.temporal.value.weight.normal_()
    return made.requires_grad_(False)


def count(module):
    return sum(parameter.numel() for parameter in module.parameters())


def test_the_published_network_has_the_published_sizes():
    with torch.device("meta"):
        made = InstrumentNet(4, temporal=False, selection=False)
    assert [count(part) for part in (made.encoder, made.decoder, made.head)] == [3_409_760, 1_755_904, 516]
    assert count(made) == 5_166_180 and round(4 * count(made) / 2**20, 2) == 19.71
    queries = {n: p for n, p in made.named_parameters() if ".attention.query." in n and n.startswith("encoder.")}
    assert sum(p.numel() for p in queries.values()) == 2 * sum(d * d + d for d in (32, 64, 160, 256)) == 193_536
    rest = count(made) - sum(p.numel() for p in queries.values())
    assert round(4 * rest / 2**20, 2) == 18.97, "what is sent where the queries stay"
    assert len(queries) == 16 and made.temporal is None and made.selection is None
    assert not list(made.buffers()) or set(made.state_dict()) == {name for name, _ in made.named_parameters()}


def test_parts_by_name_and_no_trace_of_the_indicator(small):
    assert {n.split(".")[0] for n in small.state_dict()} == {"encoder", "temporal", "selection", "decoder", "head"}
    assert {"temporal.query.weight", "temporal.key.weight", "temporal.value.weight"} <= set(small.state_dict())
    assert not any("indicator" in name for name in small.state_dict())
    assert small.temporal.heads == 2  # as the encoder has at that level
    assert "torchvision" not in sys.modules


@pytest.mark.parametrize("size", [(64, 64), (50, 71), (16, 9)])
def test_logits_have_the_size_of_the_frames(small, size):
    x = torch.rand(2, 12, *size)
    assert small(x).shape == (2, 4, *size)
    logits, feature = small.forward_plain(x)
    assert logits.shape == (2, 4, *size)
    assert feature.shape == (2, 16, *(-(-side // 16) * 2 for side in size))
    assert_close(small.plain_feature(x), feature)


def test_sides_that_do_not_fit_are_filled_by_repeating_the_edge(small):
    x = torch.rand(1, 12, 40, 64)
    filled = torch.cat([x, x[:, :, -1:].expand(-1, -1, 8, -1)], dim=2)
    assert_close(small(x), small(filled)[:, :, :40])


@pytest.mark.parametrize(("size", "said"), [((40, 64), "40 x 64 pixels are filled up to 48 x 64"), ((48, 64), "")])
def test_that_sides_do_not_fit_is_said_before_training(small, caplog, size, said):
    with caplog.at_level("INFO", "instrument_nets"):
        assert prepare_network(small, size=size) is small
    assert (said in caplog.text) if said else not caplog.text


def test_a_picture_stands_for_all_frames(small):
    picture = torch.rand(2, 3, 48, 48)
    assert_close(small(picture), small(picture.repeat(1, 4, 1, 1)))


def test_clips_of_a_batch_do_not_meet(small):
    x = torch.rand(3, 12, 32, 32)
    assert_close(small(x)[1:2], small(x[1:2]))


def test_the_newest_frame_is_the_last_and_past_ones_count(small):
    x = torch.rand(1, 12, 64, 64)
    for frame in range(4):
        changed = x.clone()
        changed[:, 3 * frame : 3 * frame + 3] = torch.rand(1, 3, 64, 64)
        assert not torch.allclose(small(changed), small(x), atol=1e-6)
        alike = torch.equal(small.forward_plain(changed)[0], small.forward_plain(x)[0])
        assert alike == (frame < 3)


def test_without_time_the_newest_frame_alone_is_looked_at():
    made, x = network(temporal=False, selection=False), torch.rand(1, 12, 32, 32)
    assert_close(made(x), made(x[:, -3:]))
    assert_close(made(x), made.forward_plain(x)[0])
    assert not any(name.startswith(("temporal", "selection")) for name in made.state_dict())


def clip_at(video, index, interval):
    """Frames t - 3 i … t of a video (T, 3, H, W); the newest stands for those before the first."""
    numbers = [index - back * interval for back in (3, 2, 1, 0)]
    return torch.cat([video[number if number >= 0 else index] for number in numbers])[None]


@pytest.mark.parametrize("interval", [1, 2])
def test_a_stream_gives_what_clips_give_and_uses_no_later_frame(small, interval):
    video = torch.rand(9, 3, 32, 32)
    stream = FrameStream(small, interval)
    for index in range(9):
        assert_close(stream(video[index : index + 1]), small(clip_at(video, index, interval)))
    assert len(stream.kept) == 3 * interval
    stream.restart()
    assert_close(stream(video[:1]), small(video[:1]))


def test_a_stream_runs_the_encoder_once_a_frame(small):
    seen = []
    hook = small.encoder.register_forward_hook(lambda _, given, __: seen.append(len(given[0])))
    stream = FrameStream(small)
    for _ in range(5):
        stream(torch.rand(1, 3, 32, 32))
    hook.remove()
    assert seen == [1] * 5


def test_a_stream_refuses_what_it_cannot_follow(small):
    with pytest.raises(ValueError, match="interval is 0"):
        FrameStream(small, 0)
    stream = FrameStream(small)
    stream(torch.rand(1, 3, 32, 32))
    with pytest.raises(ValueError, match="restart"):
        stream(torch.rand(1, 3, 64, 64))


@pytest.mark.parametrize(
    ("size", "stages", "level"),
    [
        ((512, 512), 4, 3),
        ((256, 320), 4, 3),
        ((255, 320), 4, 3),
        ((224, 224), 4, 2),
        ((64, 64), 3, 1),
        ((16, 16), 3, 0),
    ],
)
def test_the_deepest_level_with_enough_tokens(size, stages, level):
    assert level_for(size, stages) == level


def test_the_level_must_have_a_size():
    with pytest.raises(ValueError, match="whole numbers"):
        level_for((0, 64))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"rsc_level": 3}, "stages 0 to 2"),
        ({"frames": 3}, "4 regions for 3 frames"),
        ({"indicator": None}, "selection needs an indicator"),
        ({"classes": 0}, "0 classes"),
        ({"depths": (1, 1)}, "one number a stage"),
    ],
)
def test_parts_that_do_not_fit_are_refused(options, said):
    with pytest.raises(ValueError, match=said):
        InstrumentNet(**{**SMALL, **options})


def test_another_number_of_channels_is_refused(small):
    for call in (small, small.forward_plain, small.plain_feature):
        with pytest.raises(ValueError, match="6 channels; give 12"):
            call(torch.rand(1, 6, 32, 32))


def test_plain_training_reaches_neither_time_nor_selection():
    made = network()
    logits, feature = made.forward_plain(torch.rand(1, 3, 32, 32))
    (logits.mean() + feature.mean()).backward()
    without = {name.split(".")[0] for name, parameter in made.named_parameters() if parameter.grad is None}
    assert without == {"temporal", "selection"}
    made.zero_grad()
    made(torch.rand(1, 12, 32, 32)).mean().backward()
    assert all(parameter.grad is not None for parameter in made.parameters())


def test_stages_may_be_run_one_after_the_other():
    torch.manual_seed(0)
    encoder, x = PvtEncoder(**{k: SMALL[k] for k in ("dims", "depths", "heads", "reductions", "expansions")}), None
    x = torch.rand(1, 3, 32, 32)
    levels = encoder(x)
    assert [tuple(level.shape) for level in levels] == [(1, 8, 8, 8), (1, 16, 4, 4), (1, 32, 2, 2)]
    assert_close(encoder(encoder(x, 0, 2)[-1], 2), levels[2:])
