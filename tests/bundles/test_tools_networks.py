"""Networks of the bundle for tools: torchvision's tensors, ImageNet's weights, BatchNorm under each policy."""

import json
import shutil

import pytest
import torch
import yaml
from surgical_tools.encoders import FrameEncoder
from surgical_tools.errors import BundleInputError
from surgical_tools.networks import ToolNet
from surgical_tools.plain_networks import VGG13, AlexNet
from surgical_tools.weights import load_imagenet

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.find import SHIPPED_BUNDLES
from fedmed.durable_files import load_tensors
from fedmed.errors import BundleError, JobError
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job

# torchvision's state dicts with 1000 classes: shapes of weights; each has a bias of the first of its numbers.
ALEXNET = {
    "features.0": (64, 3, 11, 11),
    "features.3": (192, 64, 5, 5),
    "features.6": (384, 192, 3, 3),
    "features.8": (256, 384, 3, 3),
    "features.10": (256, 256, 3, 3),
    "classifier.1": (4096, 9216),
    "classifier.4": (4096, 4096),
    "classifier.6": (1000, 4096),
}
VGG = {
    "features.0": (64, 3, 3, 3),
    "features.2": (64, 64, 3, 3),
    "features.5": (128, 64, 3, 3),
    "features.7": (128, 128, 3, 3),
    "features.10": (256, 128, 3, 3),
    "features.12": (256, 256, 3, 3),
    "features.15": (512, 256, 3, 3),
    "features.17": (512, 512, 3, 3),
    "features.20": (512, 512, 3, 3),
    "features.22": (512, 512, 3, 3),
    "classifier.0": (4096, 25088),
    "classifier.3": (4096, 4096),
    "classifier.6": (1000, 4096),
}
BN = ("weight", "bias", "running_mean", "running_var")


def plain_shapes(weights):
    both = ((f"{name}.{part}", shape if part == "weight" else shape[:1])
            for name, shape in weights.items() for part in ("weight", "bias"))  # fmt: skip
    return dict(both)


def resnet18_shapes():
    """torchvision's ``resnet18``."""
    shapes = {"conv1.weight": (64, 3, 7, 7)} | {f"bn1.{part}": (64,) for part in BN}
    for stage, width in enumerate((64, 128, 256, 512), 1):
        for block in (0, 1):
            place, before = f"layer{stage}.{block}", width // 2 if stage > 1 and block == 0 else width
            for number, into in ((1, before), (2, width)):
                shapes[f"{place}.conv{number}.weight"] = (width, into, 3, 3)
                shapes |= {f"{place}.bn{number}.{part}": (width,) for part in BN}
            if before < width:
                shapes[f"{place}.downsample.0.weight"] = (width, before, 1, 1)
                shapes |= {f"{place}.downsample.1.{part}": (width,) for part in BN}
    return shapes | {"fc.weight": (1000, 512), "fc.bias": (1000,)}


def write(path, shapes, value=0.5):
    """A state dict of these shapes in a small file: each tensor is one number, repeated without being stored so."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save({name: torch.full((1,), value).expand(shape) for name, shape in shapes.items()}, path)
    return path


def on_meta(kind, tools):
    """A network of shapes alone. No weights are drawn: for such tensors that loads PyTorch's compiler."""
    with pytest.MonkeyPatch.context() as patch, torch.device("meta"):
        for name in ("normal_", "uniform_"):
            patch.setattr(torch.Tensor, name, lambda tensor, *args, **kwargs: tensor)
        return kind(tools)


@pytest.mark.parametrize(("kind", "weights", "parameters"), [(AlexNet, ALEXNET, 61_100_840), (VGG13, VGG, 133_047_848)])
def test_tensors_are_those_of_torchvision(kind, weights, parameters):
    network = on_meta(kind, 1000)
    assert {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()} == plain_shapes(weights)
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters
    assert tuple(on_meta(kind, 6).state_dict()["classifier.6.weight"].shape) == (6, 4096)


def test_a_resnet_has_those_of_torchvision_behind_its_prefix():
    network = ToolNet(FrameEncoder(groups=None), 512, 6)
    shapes = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items() if "num_batches" not in name}
    expected = {f"encoder.{name}": shape for name, shape in resnet18_shapes().items() if not name.startswith("fc.")}
    assert shapes == expected | {"classifier.weight": (6, 512), "classifier.bias": (6,)}


def test_a_step_of_alexnet_at_the_published_size():
    network = AlexNet(6)
    logits = network(torch.rand(1, 3, 135, 240))
    torch.nn.functional.binary_cross_entropy_with_logits(logits, torch.ones(1, 6)).backward()
    assert logits.shape == (1, 6) and all(bool(one.grad.any()) for one in network.parameters())
    with pytest.raises(ValueError, match="frames are too small for this network: AlexNet needs 63"):
        network(torch.rand(1, 3, 62, 200))


@pytest.mark.parametrize(
    ("overlays", "shapes", "last"),
    [
        (["resnet"], resnet18_shapes(), "classifier."),
        (["resnet_gn"], resnet18_shapes(), "classifier."),
        ([], plain_shapes(ALEXNET), "classifier.6."),
    ],
)
def test_a_federation_starts_from_imagenet_but_for_the_last_layer(
    store_of, overlays, shapes, last, fedmed_home, tmp_path
):
    write(fedmed_home / "models" / "imagenet.pth", shapes)
    store = store_of(tmp_path, "surgical_tool_classification", overlays, encoder="imagenet.pth")
    start = store_of(tmp_path, "surgical_tool_classification", overlays).initial
    for name, tensor in store.initial.items():
        if name.startswith(last) or name.endswith("num_batches_tracked"):
            assert torch.equal(tensor, start[name]), name
        else:
            assert bool((tensor == 0.5).all()), name


@pytest.mark.filterwarnings("ignore:.*which is a no-op")
def test_a_file_of_another_network_is_one_clear_error(store_of, fedmed_home, tmp_path):
    vgg = on_meta(VGG13, 6)
    load_imagenet(vgg, write(tmp_path / "vgg13.pth", plain_shapes(VGG)))
    with pytest.raises(BundleInputError, match="nothing.pth does not exist; correct 'encoder_checkpoint', or set it"):
        load_imagenet(vgg, tmp_path / "nothing.pth")
    alexnet = write(tmp_path / "alexnet.pth", plain_shapes(ALEXNET))
    with pytest.raises(BundleInputError, match="alexnet.pth does not fit VGG13: tensor 'features.2.weight' is missing"):
        load_imagenet(vgg, alexnet)
    deeper = resnet18_shapes() | {"layer1.2.conv1.weight": (64, 64, 3, 3)}  # as a ResNet-34 has
    resnet = ToolNet(FrameEncoder(), 512, 6)
    other = resnet18_shapes() | {"layer2.0.conv2.weight": (128, 128, 5, 5)}
    with pytest.raises(BundleInputError, match=r"'encoder.layer2.0.conv2.weight' has shape .* 5\) instead of \(128, 1"):
        load_imagenet(resnet, write(tmp_path / "other.pth", other))
    with pytest.raises(BundleInputError, match="'encoder.layer1.2.conv1.weight' is unknown; give torchvision's"):
        load_imagenet(resnet, write(tmp_path / "deeper.pth", deeper))
    with pytest.raises(BundleInputError, match="holds values that are not finite"):
        load_imagenet(resnet, write(tmp_path / "nan.pth", resnet18_shapes(), float("nan")))
    write(fedmed_home / "models" / "alexnet.pth", plain_shapes(ALEXNET))
    with pytest.raises(BundleError, match="alexnet.pth does not fit ToolNet"):
        _ = store_of(tmp_path, "surgical_tool_classification", ["resnet"], encoder="alexnet.pth").initial
    with pytest.raises(JobError, match="encoder 'none.pth' is not in .*alexnet-owt-7be5be79.pth"):
        _ = store_of(tmp_path, "surgical_tool_classification", encoder="none.pth").initial


@pytest.fixture
def narrow_resnet(tmp_path, monkeypatch):
    """The bundle, with a ResNet-18 of a few features."""
    name = "surgical_tool_classification"
    bundle = shutil.copytree(SHIPPED_BUNDLES / name, tmp_path / "bundles" / name)
    overlay = bundle / "configs" / "resnet.yaml"
    config = yaml.safe_load(overlay.read_text())
    config["network_def"]["encoder"]["widths"], config["network_def"]["features"] = [8, 8, 8, 16], 16
    overlay.write_text(yaml.safe_dump(config))
    monkeypatch.setenv("FEDMED_BUNDLES", str(bundle.parent))


def test_a_resnet_with_batch_norm_under_each_policy(store_of, write_tiny_tools_job, narrow_resnet, tmp_path):
    """One round from the same start: sites learn the same, and the policy says what becomes of the statistics."""
    final, runs = {}, {}
    for policy in ("average", "pooled", "local"):
        settings = {"supervised": {"image_size": [32, 40], "batch_size": 8, "learning_rate": 1e-2}}
        job = write_tiny_tools_job(tmp_path / "jobs", policy, overlays=["resnet"], overrides=settings, buffers=policy,
                                   select="last", evaluate=policy == "local")  # fmt: skip
        with pytest.MonkeyPatch.context() as patch:
            if policy != "local":  # whose scores are looked at
                patch.setattr(Client, "_score", lambda self, task, parser: {"val_f1": 0.5})
            run_job(job, tmp_path / policy)
        runs[policy] = tmp_path / policy
        final[policy] = load_tensors(tmp_path / policy / "server/simulate_job/app_server/FL_global_model.pt")["model"]
    average, pooled, local = final.values()
    start = store_of(tmp_path, "surgical_tool_classification", ["resnet"]).initial
    for name, tensor in average.items():
        if name.endswith("running_var"):
            assert bool((pooled[name] >= tensor * (1 - 1e-6)).all()) and not torch.equal(pooled[name], tensor), name
        else:
            assert torch.equal(pooled[name], tensor), name
        if "running" in name or "tracked" in name:
            assert not torch.equal(tensor, start[name]), name
            assert name not in local or torch.equal(local[name], start[name]), name
        else:
            assert torch.equal(local[name], tensor), name
    kept = [load_tensors(path)["private"] for path in sorted(runs["local"].glob("lap_*/**/state/round_0.pt"))]
    assert len(kept) == 2 and not torch.equal(*(of_site["encoder.bn1.running_mean"] for of_site in kept))
    scores = json.loads((runs["local"] / "server/simulate_job/fedmed/result.json").read_text())["test"]
    assert all(0 <= one["f1_mean"] <= 1 for one in scores.values()) and len(scores) == 2


def test_the_larger_network_of_the_demo_has_twice_the_weights():
    sizes = [sum(p.numel() for p in made.parameters()) for made in map(demo, ("demo", "demo_large"))]
    assert sizes == [310_998, 680_406]


def demo(overlay):
    return Bundle("surgical_tool_classification", [overlay]).parser(device="cpu").get_parsed_content("network")
