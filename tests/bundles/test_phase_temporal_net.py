"""Temporal stages of the bundle for phases: what a frame's logits depend on, and their names and sizes."""

import pytest
import torch
from surgical_phase.errors import BundleInputError
from surgical_phase.phase_net import PhaseNet
from surgical_phase.temporal_net import TemporalPhaseNet, TemporalStages
from surgical_phase.weights import start_from

TINY = {"layers": (1, 1, 1, 1), "widths": (4, 4, 4, 8), "block": "basic", "stem_pool": False}


@pytest.fixture
def stages():
    """Two stages in eval mode, float64, so that no dependence is lost by rounding."""
    torch.manual_seed(0)
    return TemporalStages(5, 3).double().eval()


def features(frames, batch=1, seed=1):
    return torch.randn(batch, 5, frames, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(("stage", "field"), [(0, 511), (1, 1021)])
def test_the_receptive_field_is_what_gradients_reach(stages, stage, field):
    """1 + 2 (2^8 - 1) frames of one stage, and each further stage adds as many less one."""
    last = 1099
    inputs = features(1100).requires_grad_()
    stages(inputs)[stage, 0, :, last].square().sum().backward()
    reached = inputs.grad.abs().sum(dim=(0, 1)).nonzero()[:, 0]
    assert reached.tolist() == list(range(last - field + 1, last + 1))


@pytest.mark.parametrize(("layers", "field"), [(1, 3), (2, 7), (3, 15)])
def test_fewer_layers_see_less(layers, field):
    torch.manual_seed(0)
    stages = TemporalStages(5, 3, stages=1, layers=layers).double().eval()
    inputs = features(40).requires_grad_()
    stages(inputs)[0, 0, :, 39].square().sum().backward()
    assert int((inputs.grad.abs().sum(dim=(0, 1)) > 0).sum()) == field


@pytest.mark.parametrize("frame", [0, 17, 199])
def test_a_frame_changes_nothing_before_it(stages, frame):
    inputs = features(200)
    changed = inputs.clone()
    changed[:, :, frame] += 10
    before, after = stages(inputs), stages(changed)
    assert torch.equal(before[..., :frame], after[..., :frame])
    assert not torch.equal(before[:, :, :, frame], after[:, :, :, frame])


def test_videos_of_unlike_length_may_be_padded_at_their_end(stages):
    short, long = features(30, seed=2), features(70, seed=3)
    padded = torch.zeros(2, 5, 70, dtype=torch.float64)
    padded[0, :, :30], padded[1] = short[0], long[0]
    together = stages(padded)
    assert together.shape == (2, 2, 3, 70)
    assert torch.allclose(together[:, :1, :, :30], stages(short), atol=1e-12)
    assert torch.allclose(together[:, 1:], stages(long), atol=1e-12)


def test_a_single_frame_and_an_empty_batch_of_history(stages):
    assert stages(features(1)).shape == (2, 1, 3, 1)


def test_the_second_stage_sees_the_first_ones_probabilities_alone(stages):
    """A constant on all logits of the first stage changes no probability, and so nothing of the second."""
    inputs = features(20)
    before = stages(inputs)
    with torch.no_grad():
        stages[0].last.bias += 3
    after = stages(inputs)
    assert torch.allclose(after[0], before[0] + 3) and torch.allclose(after[1], before[1], atol=1e-12)


def test_dropout_acts_in_training_alone(stages):
    inputs = features(20)
    assert torch.equal(stages(inputs), stages(inputs))
    stages.train()
    assert not torch.equal(stages(inputs), stages(inputs))


def test_sizes_are_the_published_ones():
    """Of 2048 features: two 1 x 1 convolutions a stage, and a kernel of 3 and one of 1 a layer, all with bias."""
    stages = TemporalStages(2048, 6)
    layer = 32 * 32 * 3 + 32 + 32 * 32 + 32
    first, second = 2048 * 32 + 32, 6 * 32 + 32
    assert sum(p.numel() for p in stages.parameters()) == first + second + 2 * (8 * layer + 32 * 6 + 6)
    assert [layer.dilated.dilation for layer in stages[0].layers] == [(2**n,) for n in range(8)]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"stages": 0}, "stages is 0"),
        ({"layers": 0}, "layers is 0"),
        ({"maps": 0}, "maps is 0"),
        ({"dropout": 1.0}, "1.0"),
    ],
)
def test_sizes_that_make_no_network(values, message):
    with pytest.raises(ValueError, match=message):
        TemporalStages(5, 3, **values)


def test_the_whole_network_is_the_encoder_and_the_stages():
    torch.manual_seed(0)
    network = TemporalPhaseNet(6, {"stages": 2, "layers": 3, "maps": 4}, **TINY).eval()
    frames = torch.rand(9, 3, 24, 32)
    logits = network(frames)
    assert logits.shape == (9, 6) and torch.equal(logits, network.phases_of(network.features(frames)))
    assert torch.allclose(network(frames[:5]), logits[:5], atol=1e-5), "later frames change nothing"
    names = {name.split(".")[0] for name in network.state_dict()}
    assert names == {"features", "stages"}
    assert {n for n in network.state_dict() if n.startswith("features.")} < set(PhaseNet(6, **TINY).state_dict())


def test_features_come_from_a_model_of_single_frames(tmp_path):
    torch.manual_seed(0)
    frames, network = PhaseNet(6, **TINY), TemporalPhaseNet(6, **TINY)
    torch.save(frames.state_dict(), tmp_path / "model.pt")
    stages = {name: tensor.clone() for name, tensor in network.stages.state_dict().items()}
    start_from(network, tmp_path / "model.pt", "features.")
    assert all(torch.equal(network.features.state_dict()[name], t) for name, t in frames.features.state_dict().items())
    assert all(torch.equal(network.stages.state_dict()[name], tensor) for name, tensor in stages.items())
    torch.save(PhaseNet(6, **{**TINY, "widths": (4, 4, 4, 4)}).state_dict(), tmp_path / "other.pt")
    with pytest.raises(
        BundleInputError, match="other.pt does not fit the layers 'features.…' of TemporalPhaseNet: .*has shape"
    ):
        start_from(network, tmp_path / "other.pt", "features.")
    kept = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert all(torch.equal(kept[n], t) for n, t in start_from(network, None, "features.").state_dict().items())
    with pytest.raises(BundleInputError, match="missing.pt does not exist"):
        start_from(network, tmp_path / "missing.pt", "features.")
