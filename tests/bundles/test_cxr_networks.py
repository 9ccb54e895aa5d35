"""Networks and weights of the chest X-ray bundle."""

import pytest
import torch
from cxr_classifier.calibration import calibrate
from cxr_classifier.errors import BundleInputError
from cxr_classifier.heat_maps import HeatMaps, overlay
from cxr_classifier.inferers import CalibratedInferer
from cxr_classifier.networks import ClassifierNet, ContrastiveNet, build_encoder, unit_rows
from cxr_classifier.weights import load_model, start_from
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

SMALL = {"layers": [1, 1, 1, 1], "widths": [4, 4, 8, 8]}


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return ClassifierNet(build_encoder(**SMALL), 8, 3)


@pytest.fixture
def contrastive():
    torch.manual_seed(1)
    return ContrastiveNet(build_encoder(**SMALL), 8, 6)


# --- networks


def test_relu_then_unit_rows():
    rows = torch.tensor([[-0.3, 0.6, 0.8], [0.6, -2, 0.8], [1, 1, 1], [-1, -2, -3]], requires_grad=True)
    made = unit_rows(rows)
    expected = torch.tensor([[0, 0.6, 0.8], [0.6, 0, 0.8], [0.5773503] * 3, [0, 0, 0]])
    torch.testing.assert_close(made, expected, atol=1e-7, rtol=0)
    assert made[3].tolist() == [0, 0, 0]
    (made * torch.arange(3)).sum().backward()
    assert torch.isfinite(rows.grad).all() and rows.grad[3].tolist() == [0, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_rows_of_zeros_are_finite_in_any_precision(dtype):
    made = unit_rows(torch.tensor([[0, 0, 0], [-1, -2, -3], [-0.3, 0.6, 0.8]], dtype=dtype))
    assert made[:2].tolist() == [[0, 0, 0]] * 2 and made.dtype == (dtype if dtype == torch.float64 else torch.float32)
    torch.testing.assert_close(made[2].double(), torch.tensor([0, 0.6, 0.8]).double(), atol=2e-3, rtol=0)


def test_a_network_without_a_positive_feature(contrastive):
    with torch.no_grad():
        contrastive.projection.weight.zero_()
        contrastive.projection.bias.fill_(-1)
    made = contrastive(torch.zeros(2, 1, 32, 32))
    assert made.tolist() == [[0] * 6] * 2
    made.sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in contrastive.parameters())


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.floats(-60_000, 60_000, width=16), min_size=3, max_size=3), min_size=1, max_size=5),
    st.sampled_from([torch.float16, torch.float32, torch.float64]),
)
def test_invariant_1_entries_from_zero_and_rows_of_length_one_or_zero(rows, dtype):
    rows = torch.tensor(rows, dtype=dtype)
    made = unit_rows(rows)
    assert bool((made >= 0).all()) and bool(((made > 0) <= (rows > 0)).all())
    expected = (rows > 0).any(dim=1).to(made.dtype)
    torch.testing.assert_close(made.norm(dim=1), expected, atol=1e-6, rtol=0)


def test_the_default_encoder_is_resnet_18():
    encoder = build_encoder()
    convolutions = [m for m in encoder.modules() if isinstance(m, nn.Conv2d)]
    assert len([c for c in convolutions if c.kernel_size != (1, 1)]) == 17  # the 18th layer is the classifier
    assert sum(p.numel() for p in encoder.parameters()) == 11_170_240  # torchvision's with 1 input channel, without fc
    assert encoder.eval()(torch.rand(1, 1, 64, 64)).shape == (1, 512)


@pytest.mark.parametrize("shape", [(64, 64), (50, 41)])
@pytest.mark.parametrize("stem", [{}, {"stem_pool": False, "stem_kernel": 3, "stem_stride": 1}])
def test_images_of_any_size_give_one_row_each(shape, stem):
    images = torch.rand(2, 1, *shape)
    z = ContrastiveNet(build_encoder(**SMALL, **stem), 8, 6)(images)
    assert z.shape == (2, 6) and bool((z >= 0).all())
    lengths = z.norm(dim=1)
    assert bool((((lengths - 1).abs() < 1e-6) | (lengths == 0)).all())
    assert ClassifierNet(build_encoder(**SMALL, **stem), 8, 3).features(images).shape == (2, 8)


def test_names_of_tensors(classifier, contrastive):
    parts = {name.split(".")[0] for name in classifier.state_dict()}
    assert parts == {"encoder", "classifier", "temperature"} and classifier.temperature.shape == (1,)
    assert {name.split(".")[0] for name in contrastive.state_dict()} == {"encoder", "projection"}
    encoders = [[n for n in net.state_dict() if n.startswith("encoder.")] for net in (classifier, contrastive)]
    assert encoders[0] == encoders[1]


@pytest.mark.parametrize("wrong", [{"layers": [1, 1]}, {"widths": [4, 4, 8]}, {"widths": [4, 0, 8, 8]}])
def test_impossible_encoders_are_refused(wrong):
    with pytest.raises(ValueError, match="four integers"):
        build_encoder(**{**SMALL, **wrong})
    with pytest.raises(ValueError, match="at least two classes"):
        ClassifierNet(nn.Identity(), 8, 1)


def test_temperature_changes_probabilities_not_logits(classifier):
    classifier.eval()
    images = torch.rand(4, 1, 32, 32)
    logits = classifier(images)
    with torch.no_grad():
        classifier.temperature.fill_(2.0)
    torch.testing.assert_close(classifier(images), logits)
    expected = torch.softmax(logits / 2, dim=1)
    torch.testing.assert_close(classifier.probabilities(logits), expected)
    torch.testing.assert_close(CalibratedInferer()(images, classifier), expected)
    scripted = torch.jit.trace(classifier, images)
    torch.testing.assert_close(CalibratedInferer()(images, scripted), expected)


# --- weights


def saved(network, path, **changes):
    content = {**network.state_dict(), **changes}
    torch.save({name: tensor for name, tensor in content.items() if tensor is not None}, path)
    return path


def test_the_encoder_of_pre_training_starts_a_classifier(classifier, contrastive, tmp_path):
    contrastive(torch.rand(4, 1, 32, 32))  # moves the running statistics
    head = {name: t.clone() for name, t in classifier.state_dict().items() if not name.startswith("encoder.")}
    start_from(classifier, saved(contrastive, tmp_path / "pretrained.pt"))
    for name, tensor in contrastive.encoder.state_dict().items():
        assert torch.equal(classifier.encoder.state_dict()[name], tensor)
    assert all(torch.equal(classifier.state_dict()[name], tensor) for name, tensor in head.items())
    before = {name: t.clone() for name, t in classifier.state_dict().items()}
    start_from(classifier, None)
    assert all(torch.equal(classifier.state_dict()[name], tensor) for name, tensor in before.items())


def test_an_encoder_that_does_not_fit_is_refused(classifier, contrastive, tmp_path):
    path, bias = tmp_path / "x.pt", "encoder.layer1.0.bn1.bias"
    wider = ContrastiveNet(build_encoder([1] * 4, [8, 8, 8, 8]), 8, 6)
    cases = [
        (lambda: path, r"does not exist; pre-train first"),
        (lambda: saved(wider, path), r"does not fit the encoder: tensor 'encoder.conv1.weight' has shape \(8, 1, 7"),
        (lambda: saved(contrastive, path, **{bias: None}), f"tensor '{bias}' is missing"),
        (
            lambda: saved(contrastive, path, **{bias: torch.full((4,), torch.nan)}),
            f"'{bias}' holds values that are not",
        ),
        (lambda: saved(contrastive, path, **{"encoder.extra": torch.ones(1)}), "'encoder.extra' is unknown"),
        (lambda: saved(nn.Linear(2, 2), path), "has no tensor 'encoder"),
        (lambda: path.write_bytes(b"x") and path, "is not a file of weights"),
        (lambda: torch.save([1], path) or path, "holds list, not named tensors"),
    ]
    before = {name: t.clone() for name, t in classifier.state_dict().items()}
    for make, message in cases:
        with pytest.raises(BundleInputError, match=message):
            start_from(classifier, make())
    assert all(torch.equal(classifier.state_dict()[name], tensor) for name, tensor in before.items())


def test_a_trained_model_is_loaded_strictly(classifier, contrastive, tmp_path):
    path = tmp_path / "model.pt"
    other = ClassifierNet(build_encoder(**SMALL), 8, 3)
    torch.save({"model": other.state_dict()}, path)
    load_model(classifier, path)
    assert all(torch.equal(classifier.state_dict()[n], t) for n, t in other.state_dict().items())
    for content, message in [(contrastive, "'classifier.weight' is missing"), (nn.Linear(1, 1), "is missing")]:
        with pytest.raises(BundleInputError, match=message):
            load_model(classifier, saved(content, path))
    with pytest.raises(BundleInputError, match="classes that it was trained with"):
        load_model(classifier, saved(ClassifierNet(build_encoder(**SMALL), 8, 4), path))


def test_calibration_is_kept_with_the_weights(classifier, tmp_path):
    classifier.eval()
    torch.manual_seed(3)
    images, labels = torch.rand(12, 1, 32, 32), torch.arange(12) % 3
    batches = [{"image": images[:7], "label": labels[:7]}, {"image": images[7:], "label": labels[7:]}]
    seen = {}

    def fit(logits, truth):
        seen.update(logits=logits, labels=truth)
        return 2.5

    def error(probabilities, truth):
        return float(probabilities.max())

    result = calibrate(classifier, batches, tmp_path / "model.pt", fit, error)
    torch.testing.assert_close(seen["logits"], classifier(images).detach(), atol=1e-5, rtol=0)
    assert torch.equal(seen["labels"], labels)
    assert result["temperature"] == 2.5 and result["ece_after"] < result["ece_before"]
    expected = nn.functional.cross_entropy(classifier(images) / 2.5, labels)
    assert result["nll_after"] == pytest.approx(float(expected), abs=1e-5)
    other = load_model(ClassifierNet(build_encoder(**SMALL), 8, 3), tmp_path / "model.pt")
    assert float(other.temperature) == 2.5 and not list(tmp_path.glob("*.tmp"))


# --- heat maps


class Corners(nn.Module):
    """Class 0 is brightness on the left, class 1 on the right; the layer just smooths."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.AvgPool2d(4), nn.Conv2d(1, 2, 1, bias=False))
        with torch.no_grad():
            self.layer[1].weight.fill_(1.0)

    def forward(self, x):
        maps = self.layer(x)
        half = maps.shape[-1] // 2
        return torch.stack([maps[:, 0, :, :half].mean((1, 2)), maps[:, 1, :, half:].mean((1, 2))], dim=1)


def test_heat_lies_where_the_class_is_seen():
    image = torch.zeros(1, 32, 32)
    image[:, 4:12, 4:12] = 1
    maps = HeatMaps(Corners(), "layer")
    heat = maps(image, 0)
    assert heat.shape == (32, 32) and heat.max() == 1 and heat.min() >= 0
    assert heat[4:12, 4:12].mean() > 0.5 and heat[:, 20:].max() == 0
    assert not maps(torch.zeros(1, 32, 32), 0).any()


def test_heat_maps_leave_the_network_alone(classifier):
    classifier.train()
    before = {name: t.clone() for name, t in classifier.state_dict().items()}
    with torch.no_grad():
        heat = HeatMaps(classifier, "encoder.layer3")(torch.rand(1, 32, 32), 1)
    assert heat.min() >= 0 and heat.max() <= 1
    assert classifier.training and all(p.grad is None for p in classifier.parameters())
    assert not classifier.encoder.layer3._forward_hooks
    assert all(torch.equal(classifier.state_dict()[name], tensor) for name, tensor in before.items())
    with pytest.raises(BundleInputError, match="heat_map_layer is 'encoder.layer9'"):
        HeatMaps(classifier, "encoder.layer9")


def test_an_overlay_is_grey_without_heat_and_red_where_it_is_strongest():
    image, heat = torch.full((64, 64), 0.4).numpy(), torch.zeros(64, 64)
    heat[10:20, 30:40] = 1
    picture = overlay(image, heat.numpy())
    assert picture.size == (512, 512) and picture.mode == "RGB"
    assert picture.getpixel((5, 500)) == (102, 102, 102)
    assert picture.getpixel((35 * 8, 15 * 8)) == (178, 51, 51)
