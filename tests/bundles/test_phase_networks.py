"""The network of the bundle for phases: torchvision's ResNet-50, BatchNorm or GroupNorm, ImageNet's weights, parts."""

import pytest
import torch
from surgical_phase.encoders import FrameEncoder, replace_batch_norm
from surgical_phase.phase_net import PhaseNet
from torch import nn

from fedmed.aggregation.sharing import SharingPolicy
from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError, JobError

NAME = "surgical_phase_classification"
BN = ("weight", "bias", "running_mean", "running_var")
SMALL = {"layers": [1, 1, 1, 1], "widths": [8, 8, 16, 16], "block": "basic", "stem_pool": False}


def resnet50_shapes():
    """torchvision's ``resnet50`` with 1000 classes."""
    shapes = {"conv1.weight": (64, 3, 7, 7)} | {f"bn1.{part}": (64,) for part in BN}
    before = 64
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        for block in range(blocks):
            place, wide = f"layer{stage}.{block}", 4 * width
            kernels = {1: (width, before, 1, 1), 2: (width, width, 3, 3), 3: (wide, width, 1, 1)}
            for number, shape in kernels.items():
                shapes[f"{place}.conv{number}.weight"] = shape
                shapes |= {f"{place}.bn{number}.{part}": shape[:1] for part in BN}
            if block == 0:
                shapes[f"{place}.downsample.0.weight"] = (wide, before, 1, 1)
                shapes |= {f"{place}.downsample.1.{part}": (wide,) for part in BN}
            before = wide
    return shapes | {"fc.weight": (1000, 2048), "fc.bias": (1000,)}


def write(path, shapes):
    """A state dict of these shapes in a small file: the n-th tensor is n, repeated without being stored so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = {name: torch.full((1,), float(n)).expand(shape) for n, (name, shape) in enumerate(shapes.items(), 1)}
    torch.save(values, path)
    return values


def test_tensors_are_those_of_torchvision_behind_a_prefix():
    with torch.device("meta"):
        network = PhaseNet(6)
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items() if "num_batches" not in name}
    expected = {f"features.{name}": shape for name, shape in resnet50_shapes().items() if not name.startswith("fc.")}
    assert shapes == expected | {"classifier.weight": (6, 2048), "classifier.bias": (6,)}
    # 25,557,032 of torchvision's, 2,049,000 of them in its last layer, and 6 x 2049 here
    assert sum(one.numel() for one in network.parameters()) == 25_557_032 - 2_049_000 + 6 * 2049


def test_logits_are_one_layer_on_pooled_features():
    network, images = PhaseNet(6).eval(), torch.rand(2, 3, 64, 80)
    with torch.no_grad():
        features = network.features(images)
        assert features.shape == (2, 2048) and network(images).shape == (2, 6)
        assert torch.equal(network.classifier(features), network(images))


def test_colours_are_normalised_within_the_features():
    """The same as MONAI's own ResNet, which lacks that step, on normalised images."""
    encoder = FrameEncoder([1] * 4, [8] * 4, groups=None, block="bottleneck").eval()
    images = torch.rand(2, 3, 40, 40)
    mean, std = (torch.tensor(v).view(1, 3, 1, 1) for v in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    with torch.no_grad():
        expected = super(FrameEncoder, encoder).forward((images - mean) / std)
        assert torch.allclose(encoder(images), expected, atol=1e-6) and expected.shape == (2, 32)
    assert not [name for name in encoder.state_dict() if "mean" in name and "running" not in name]


@pytest.mark.parametrize(("overlays", "norm"), [(["demo"], nn.BatchNorm2d), (["demo", "groupnorm"], nn.GroupNorm)])
def test_the_networks_of_the_demo(overlays, norm):
    network = Bundle(NAME, overlays).parser(device="cpu").get_parsed_content("network")
    assert network.features.width == network.classifier.in_features == 64
    layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d | nn.GroupNorm)]
    assert {type(layer) for layer in layers} == {norm} and len(layers) == 12
    if norm is nn.GroupNorm:  # the greatest common divisor of 32 and the channels
        assert {(layer.num_channels, layer.num_groups) for layer in layers} == {(16, 16), (32, 32), (64, 32)}
    images = torch.rand(2, 3, 64, 64)
    network(images).sum().backward()
    assert all(bool(one.grad.any()) for one in network.features.parameters() if one.ndim > 1)


@pytest.mark.parametrize(("channels", "groups"), [(64, 32), (48, 16), (8, 8), (6, 2), (7, 1)])
def test_group_norm_takes_weight_and_bias_of_the_batch_norm(channels, groups):
    norm = nn.BatchNorm2d(channels)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    network = nn.Sequential(nn.Sequential(norm))
    replace_batch_norm(network, 32)
    (made,) = network[0]
    assert isinstance(made, nn.GroupNorm) and (made.num_groups, made.eps) == (groups, norm.eps)
    assert torch.equal(made.weight, norm.weight) and torch.equal(made.bias, norm.bias)
    assert set(network.state_dict()) == {"0.0.weight", "0.0.bias"}


@pytest.mark.parametrize("overlays", [[], ["groupnorm"]])
def test_a_federation_starts_from_imagenet_but_for_the_classifier(store_of, overlays, fedmed_home, tmp_path):
    """Each tensor comes from that of its own name; GroupNorm takes BatchNorm's weight and bias."""
    given = write(fedmed_home / "models" / "resnet50.pth", resnet50_shapes())
    store = store_of(tmp_path, NAME, overlays, encoder="resnet50.pth")
    start = store_of(tmp_path, NAME, overlays).initial
    for name, tensor in store.initial.items():
        if name.startswith("classifier.") or name.endswith("num_batches_tracked"):
            assert torch.equal(tensor, start[name]), name
        else:
            assert torch.equal(tensor, given[name.removeprefix("features.")]), name
    assert any("running" in name for name in start) == (not overlays)


def test_a_file_of_another_network_is_one_clear_error(store_of, fedmed_home, tmp_path):
    shallow = {name: shape for name, shape in resnet50_shapes().items() if not name.startswith("layer3.5.")}
    write(fedmed_home / "models" / "shallow.pth", shallow)
    with pytest.raises(BundleError, match=r"'features.layer3.5.conv1.weight' is missing.* torchvision's .* resnet50"):
        _ = store_of(tmp_path, NAME, encoder="shallow.pth").initial
    with pytest.raises(JobError, match="encoder 'none.pth' is not in .*resnet50-0676ba61.pth"):
        _ = store_of(tmp_path, NAME, encoder="none.pth").initial


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"phases": 0}, "0 outputs; at least one is needed"),
        ({"layers": [1, 1, 1]}, "use four layers and four widths, and whole"),
        ({"groups": 0}, "use four layers and four widths, and whole"),
        ({"block": "wide"}, "Unknown block 'wide'"),
    ],
)
def test_a_wrong_size_is_refused(wrong, words):
    with pytest.raises(ValueError, match=words):
        PhaseNet(**{"phases": 6, **SMALL, **wrong})


def test_what_an_unlabelled_site_sends_is_the_features_alone():
    bundle = Bundle(NAME, ["demo"])
    network = bundle.parser(device="cpu").get_parsed_content("network")
    policy = SharingPolicy.from_groups(network.state_dict(), "full", bundle.groups(network), send_group="head")
    assert policy.sent(network.state_dict()) == [f"features.{name}" for name in network.features.state_dict()]
    assert set(policy.received(network.state_dict())) == {*network.state_dict()}
    kept = SharingPolicy.from_groups(network.state_dict(), "norm", bundle.groups(network)).private(network.state_dict())
    assert kept and all(".bn" in name or ".downsample.1." in name for name in kept)
