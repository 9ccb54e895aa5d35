"""The bundle's own package, which needs MONAI and torch only."""

import pytest
import torch
from covid_ct.errors import BundleInputError
from covid_ct.inferers import ForegroundInferer, ProbabilityWindowInferer
from covid_ct.transforms import ForegroundMaskd, SafeSpacingd
from covid_ct.weights import load_encoder, load_model, prepare_network
from monai.data import MetaTensor
from monai.data.utils import dense_patch_slices
from monai.inferers import SlidingWindowInferer
from monai.inferers.utils import _get_scan_interval
from monai.networks.nets import AHNet, SegResNet, resnet50
from monai.networks.nets.ahnet import Bottleneck3x3x1
from monai.transforms import Compose, Invertd, Spacingd
from torch import nn


@pytest.fixture
def paper_inferer(parser):
    return parser("train", window_batch=1).get_parsed_content("inferer")


class Recorder(nn.Module):
    """A network that notes the first voxel of each window and returns zeros."""

    def __init__(self):
        super().__init__()
        self.starts = []

    def forward(self, window):
        self.starts += window[:, 0, 0, 0, 0].tolist()
        return torch.zeros(len(window), 2, *window.shape[2:])


# --- inference


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((224, 224, 60), 2, [0, 16, 28]),
        ((400, 224, 32), 0, [*range(0, 176, 16), 176]),
        ((224, 400, 32), 1, [*range(0, 176, 16), 176]),
    ],
)
def test_window_starts(paper_inferer, shape, axis, expected):
    network = Recorder()
    index = torch.arange(shape[axis], dtype=torch.float32).reshape([-1 if a == axis else 1 for a in range(3)])
    result = paper_inferer(index.expand(1, 1, *shape), network)
    assert network.starts == expected and result.shape == (1, 2, *shape)


def test_number_of_windows(paper_inferer, parser):
    def count(inferer):
        interval = _get_scan_interval((400, 400, 60), tuple(inferer.roi_size), 3, inferer.overlap)
        return len(dense_patch_slices((400, 400, 60), inferer.roi_size, interval))

    assert count(paper_inferer) == 12 * 12 * 3
    assert count(parser("train", "cpu").get_parsed_content("inferer")) == 27


def by_hand(volume, network, window, step):
    """Average of probabilities, window by window, along z."""
    starts = [*range(0, volume.shape[-1] - window, step), volume.shape[-1] - window]
    total, count = torch.zeros(1, 2, *volume.shape[2:]), torch.zeros(volume.shape[-1])
    for start in starts:
        total[..., start : start + window] += torch.softmax(network(volume[..., start : start + window]), dim=1)
        count[start : start + window] += 1
    return total / count


def test_probabilities_are_averaged_not_logits():
    def network(window):  # what it says of a voxel depends on the rest of the window
        logit = window - 2 * window.mean(dim=(1, 2, 3, 4), keepdim=True) + 3
        return torch.cat([torch.zeros_like(logit), 3 * logit], dim=1)

    volume = torch.rand(1, 1, 8, 8, 20, generator=torch.Generator().manual_seed(0)) + torch.arange(20) / 4
    options = {"roi_size": (8, 8, 8), "overlap": 0.5, "sw_batch_size": 3}
    result = ProbabilityWindowInferer(**options)(volume, network)
    assert torch.allclose(result, by_hand(volume, network, 8, 4), atol=1e-6)
    assert torch.allclose(result.sum(dim=1), torch.ones(1, 8, 8, 20))
    logits = torch.softmax(SlidingWindowInferer(**options)(volume, network), dim=1)
    assert (result - logits).abs().max() > 0.05


def test_a_volume_smaller_than_a_window_is_padded_with_air_and_cropped_back():
    seen = []

    def network(window):
        seen.append(window)
        return torch.cat([torch.zeros_like(window), window], dim=1)

    volume = torch.rand(1, 1, 5, 7, 3) + 0.5
    result = ProbabilityWindowInferer(roi_size=(8, 8, 8), overlap=0.5)(volume, network)
    assert seen[0].shape == (1, 1, 8, 8, 8) and int((seen[0] == 0).sum()) == 8**3 - 5 * 7 * 3
    assert torch.allclose(result[:, 1:], torch.sigmoid(volume))


def test_foreground_inferer_gives_the_probability_of_channel_one():
    logits = torch.randn(3, 2, 4, 4, 4)
    result = ForegroundInferer()(torch.zeros(3, 1, 4, 4, 4), lambda image: logits)
    assert result.shape == (3, 1, 4, 4, 4)
    assert torch.allclose(result, torch.sigmoid(logits[:, 1:] - logits[:, :1]))


# --- transforms


def test_safe_spacing_leaves_other_entries_alone_and_can_be_undone():
    image = MetaTensor(torch.rand(1, 10, 8, 6), affine=torch.diag(torch.tensor([2.0, 2.0, 4.0, 1.0])))
    image.meta["filename_or_obj"] = "scan.nii.gz"
    case = {"image": image, "image_path": "/data/scan.nii.gz"}
    with pytest.raises(AttributeError):
        Spacingd("image", (1.0, 1.0, 2.0))(case)  # why the subclass exists: remove it when this no longer fails
    steps = Compose([SafeSpacingd("image", (1.0, 1.0, 2.0))])
    done = steps(case)
    assert done["image_path"] == case["image_path"] and done["image"].shape[1] in (19, 20)
    assert torch.allclose(done["image"], Spacingd("image", (1.0, 1.0, 2.0))({"image": image})["image"], atol=1e-5)
    done["pred"] = MetaTensor(torch.ones(done["image"].shape))
    back = Invertd("pred", steps, "image", nearest_interp=False)(done)["pred"]
    assert back.shape == image.shape and torch.equal(back.affine, image.affine)


def test_foreground_mask():
    p = torch.tensor([0.0, 0.3, 0.5, 0.51, 1.0]).reshape(1, 5, 1, 1)
    case = {"pred": torch.cat([1 - p, p])}
    assert ForegroundMaskd("pred")(case)["pred"].flatten().tolist() == [0, 0, 0, 1, 1]
    assert ForegroundMaskd("pred", 0.2)(case)["pred"].flatten().tolist() == [0, 1, 1, 1, 1]
    with pytest.raises(ValueError, match="threshold is 1.5"):
        ForegroundMaskd("pred", 1.5)


# --- the network


def test_a_block_of_the_encoder_keeps_what_is_constant_along_z():
    """AHNet (Liu et al. 2018): its 3 x 3 x 1 kernels act on each slice as the 3 x 3 kernels of the 2D ResNet-50."""
    torch.manual_seed(0)
    block = Bottleneck3x3x1(3, 16, 4)
    slice_ = torch.randn(2, 16, 9, 9, 1)
    for mode in (True, False):
        result = block.train(mode)(slice_.expand(-1, -1, -1, -1, 7).clone())
        assert torch.allclose(result, result[..., :1].expand_as(result), atol=1e-5)
    stem = AHNetStem()(torch.ones(1, 1, 16, 16, 8))
    assert torch.allclose(stem[..., 1:-1], stem[..., 1:2].expand_as(stem[..., 1:-1]), atol=1e-5)
    assert not torch.allclose(stem[..., 0], stem[..., 1])  # padding shows at the first slice of the 7 x 7 x 3 stem


def AHNetStem():
    return nn.Conv3d(1, 4, (7, 7, 3), stride=(2, 2, 1), padding=(3, 3, 1), bias=False)


@pytest.mark.slow
def test_a_training_step_of_ahnet(parser):
    config = parser("train", device="cpu")
    network, loss = config.get_parsed_content("network"), config.get_parsed_content("loss")
    image, label = torch.rand(1, 1, 128, 128, 32), torch.zeros(1, 1, 128, 128, 32)
    label[..., 40:80, 40:80, 8:16] = 1
    value = loss(config.get_parsed_content("train#inferer")(image, network), label)
    value.backward()
    assert torch.isfinite(value) and all(torch.isfinite(p.grad).all() for p in network.parameters())
    assert network.bn0.running_mean.abs().sum() > 0


# --- weights


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """A 2D ResNet-50 with torchvision's names and every number random, and the file of its weights."""
    torch.manual_seed(0)
    network = resnet50(spatial_dims=2, n_input_channels=3, num_classes=10, conv1_t_stride=2, bias_downsample=False)
    for name, tensor in network.state_dict().items():
        if "bn" in name or "downsample.1" in name:
            tensor.copy_(torch.rand_like(tensor.float()) + 0.5)
    network.eval()
    path = tmp_path_factory.mktemp("encoder") / "resnet50.pth"
    torch.save(network.state_dict(), path)
    return network, path


def ahnet():
    return AHNet(spatial_dims=3, in_channels=1, out_channels=2, psp_block_num=4, upsample_mode="trilinear")


@pytest.fixture(scope="module")
def refusing():
    """A network to which no file fits that a test gives it."""
    return ahnet()


@pytest.fixture(scope="module")
def loaded(resnet):
    """A network with the weights of ``resnet``, and what its decoder was before. Do not change it."""
    torch.manual_seed(1)
    network = ahnet()
    decoder = {name: p.clone() for name, p in network.named_parameters() if name.startswith(("up", "dense", "final"))}
    return prepare_network(network, resnet[1]).eval(), decoder


def test_the_encoder_computes_on_slices_what_the_2d_network_computes(resnet, loaded):
    flat, network = resnet[0], loaded[0]
    with torch.no_grad():
        image = torch.randn(1, 64, 12, 12, 3)
        for z in range(3):
            expected = flat.layer1(image[..., z])
            assert torch.allclose(network.layer1(image)[..., z], expected, rtol=1e-3, atol=1e-3)
        image = torch.rand(1, 256, 8, 8, 1).expand(-1, -1, -1, -1, 4)
        expected = flat.layer2(image[..., 0])
        assert torch.allclose(network.layer2(image)[..., 1], expected, rtol=1e-3, atol=1e-3 * expected.abs().max())


def test_the_encoder_equals_monai_s_copy_and_has_running_statistics_too(resnet, loaded):
    flat, (network, decoder), reference = resnet[0], loaded, ahnet()
    flat.bn0 = flat.bn1
    reference.copy_from(flat)
    for name, parameter in reference.named_parameters():
        if name.startswith(("conv1", "bn0", "layer")):
            assert torch.equal(network.get_parameter(name), parameter), name
    assert torch.equal(network.bn0.running_var, flat.bn1.running_var)
    assert torch.equal(network.layer3[0].downsample[2].running_mean, flat.layer3[0].downsample[1].running_mean)
    assert all(torch.equal(network.get_parameter(name), p) for name, p in decoder.items())


def test_no_checkpoint_leaves_the_network_as_it_is():
    network = SegResNet(init_filters=8)
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert prepare_network(network) is network
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())


def test_weights_with_channels_last_are_the_same_and_so_is_what_the_network_makes():
    network, image = SegResNet(init_filters=8), torch.rand(2, 1, 16, 16, 16)
    before, expected = {name: tensor.clone() for name, tensor in network.state_dict().items()}, network(image)
    prepare_network(network, channels_last=True)
    assert network.convInit.conv.weight.is_contiguous(memory_format=torch.channels_last_3d)
    assert all(torch.equal(before[name], tensor) for name, tensor in network.state_dict().items())
    assert torch.allclose(network(image), expected, atol=1e-4)  # sums are made in another order


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.pop("layer4.2.conv3.weight"), "tensor 'layer4.2.conv3.weight' is missing"),
        (lambda s: s.pop("bn1.running_var"), "tensor 'bn1.running_var' is missing"),
        (
            lambda s: s.update({"layer1.0.conv2.weight": torch.zeros(64, 64, 5, 5)}),
            r"tensor 'layer1.0.conv2.weight' has shape \(64, 64, 5, 5\), which does not fit",
        ),
        (lambda s: s.update({"conv1.weight": torch.zeros(64, 1, 7, 7)}), "tensor 'conv1.weight' has shape"),
        (lambda s: s.update(epoch=3), "not named tensors"),
    ],
)
def test_a_file_of_another_network_is_refused(resnet, refusing, tmp_path, change, message):
    """Each tensor of the file is one number, repeated without being stored so."""
    content = {name: torch.zeros(()).expand(tensor.shape) for name, tensor in resnet[0].state_dict().items()}
    change(content)
    torch.save(content, tmp_path / "other.pth")
    with pytest.raises(BundleInputError, match=message):
        load_encoder(refusing, tmp_path / "other.pth")


def test_other_files_and_networks_are_refused(resnet, refusing, tmp_path):
    with pytest.raises(BundleInputError, match="nowhere.pth does not exist; correct the path"):
        load_encoder(refusing, tmp_path / "nowhere.pth")
    (tmp_path / "text.pth").write_text("not weights")
    with pytest.raises(BundleInputError, match="text.pth is not a file of weights"):
        load_encoder(refusing, tmp_path / "text.pth")
    torch.save({"evil": print}, tmp_path / "code.pth")
    with pytest.raises(BundleInputError, match="code.pth is not a file of weights"):
        load_encoder(refusing, tmp_path / "code.pth")
    with pytest.raises(BundleInputError, match="SegResNet has no ResNet-50 encoder; use AHNet or null"):
        load_encoder(SegResNet(init_filters=8), resnet[1])


def test_weights_are_loaded_strictly(tmp_path):
    source, target = SegResNet(init_filters=8), SegResNet(init_filters=8)
    path = tmp_path / "model.pt"
    for content in (source.state_dict(), {"state_dict": source.state_dict()}, {"model": source.state_dict()}):
        torch.save(content, path)
        assert load_model(target, path) is target
        assert all(torch.equal(a, b) for a, b in zip(source.parameters(), target.parameters(), strict=True))
    for other in (SegResNet(init_filters=16), SegResNet(init_filters=8, blocks_up=(1, 1, 2))):
        with pytest.raises(BundleInputError, match="model.pt does not fit SegResNet: .* overlays") as caught:
            load_model(other, path)
        assert len(str(caught.value)) < 600
