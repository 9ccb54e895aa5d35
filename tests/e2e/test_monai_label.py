"""A federation's bundle in MONAI Label, through MONAI Label's own client: what a reader at a hospital gets."""

import json
import shutil
import urllib.error
import urllib.request
from pathlib import Path

import nibabel as nib
import numpy as np
import psutil
import pytest
import torch
import yaml
from monai.bundle import ConfigParser
from monai.bundle import run as bundle_run
from monai.networks.blocks import Convolution
from monai.networks.nets import resnet10
from PIL import Image

from fedmed.bundles.digests import read_digests, write_digests
from fedmed.labelling.views import predictive_uncertainty

TOOLS, INBODY, CT = "endoscopic_tool_segmentation", "endoscopic_inbody_classification", "covid_ct_segmentation"
LOADING = [{"_target_": "LoadImaged", "keys": "image"}, {"_target_": "EnsureChannelFirstd", "keys": "image"}]
ASK = """
file, answer = client.infer(given["model"], given["image"], given.get("params") or {})
result = [file, json.loads(answer) if isinstance(answer, bytes) else answer]
"""
TAMPER = """
from monailabel.client.client import MONAILabelUtils
result = []
def attempt(call, *arguments, **named):
    try:
        result.append(call(*arguments, **named))
    except Exception as error:
        result.append(str(error))
attempt(client.save_label, given["image"], given["file"], tag="..")
attempt(client.save_label, given["image"], given["file"], tag=given["outside"])
attempt(client.upload_image, given["file"], given["outside"])
attempt(client.upload_image, given["file"], given["image"])
for method, what in ("DELETE", "/datastore/image?id=" + given["image"]), ("DELETE", "/model/"), ("PUT", "/model/"):
    path = what + given["model"] if what.endswith("/") else what
    result.append(MONAILabelUtils.http_method(method, given["server"], path)[0])
attempt(client.infer, given["model"], given["image"], {"image": given["file"]})
attempt(client.create_session, given["file"])
"""


OTHER_MASK = """
try:
    result = str(client.save_label(given["image"], given["file"]))
except Exception as error:
    result = str(error)
result = [result, client.datastore()["objects"][given["image"]].get("labels", {})]
"""


def affine(angle: float = 0.3) -> np.ndarray:
    """Towards left and posterior, turned about two axes, voxels of 3.1 x 3.6 x 7.5 mm."""
    c, s = np.cos(angle), np.sin(angle)
    turn = np.array([[c, -s, 0], [s, c, 0], [0, 0, 1]]) @ np.array([[1, 0, 0], [0, c, -s], [0, s, c]])
    matrix = np.eye(4)
    matrix[:3, :3] = turn @ np.diag([-3.1, -3.6, 7.5])
    matrix[:3, 3] = [61.5, -17.25, 12.0]
    return matrix


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """One oblique scan, pictures with a red tool in one corner, and files other than images."""
    folder = tmp_path_factory.mktemp("studies")
    rng = np.random.default_rng(7)
    nib.save(nib.Nifti1Image(rng.normal(-600, 250, (52, 45, 13)).astype(np.int16), affine()), folder / "oblique.nii.gz")
    picture = rng.integers(0, 60, (48, 90, 3), dtype=np.uint8)
    picture[4:16, 50:84, 0] = 250
    Image.fromarray(picture).save(folder / "frame.png")
    Image.fromarray(picture).save(folder / "photo.jpg", quality=95)
    (folder / "corrupt.nii.gz").write_bytes(b"this was a scan once")
    (folder / "empty.nii").write_bytes(b"")
    return folder


@pytest.fixture(scope="module")
def ct_bundle(exported_bundle, studies, tmp_path_factory):
    """The exported bundle with a threshold that splits the scan, and files beside its weights that must not be used."""
    root = tmp_path_factory.mktemp("bundles") / CT
    shutil.copytree(exported_bundle, root)
    config = root / "configs" / "inference.yaml"
    parser = ConfigParser(yaml.safe_load(config.read_text()))
    parser["bundle_root"] = str(root)
    network = parser.get_parsed_content("network_def")
    weights = torch.load(root / "models" / "model.pt", weights_only=True)
    network.load_state_dict(weights)
    image = parser.get_parsed_content("preprocessing")({"image": str(studies / "oblique.nii.gz")})["image"]
    with torch.no_grad():
        probability = parser.get_parsed_content("inferer")(image[None], network.eval())[0, 1]
    values = yaml.safe_load(config.read_text())
    config.write_text(yaml.safe_dump({**values, "threshold": float(probability.median())}, sort_keys=False))
    torch.save({name: torch.zeros_like(value) for name, value in weights.items()}, root / "models" / "other.pt")
    torch.jit.script(torch.nn.Identity()).save(root / "models" / "model.ts")
    write_digests(root, read_digests(root)["made_of"])
    return root


@pytest.fixture(scope="module")
def expected(ct_bundle, studies, tmp_path_factory):
    """What `python -m monai.bundle run` writes for the oblique scan."""
    images, out = tmp_path_factory.mktemp("images"), tmp_path_factory.mktemp("out")
    shutil.copy(studies / "oblique.nii.gz", images)
    changes = {"bundle_root": str(ct_bundle), "dataset_dir": str(images), "output_dir": str(out), "device": "cpu"}
    bundle_run(config_file=str(ct_bundle / "configs" / "inference.yaml"), **changes)
    return nib.load(next(out.rglob("*.nii.gz")))


def picture_bundle(root: Path, network: torch.nn.Module, classes: list[str], **parts) -> Path:
    """Write a small 2D bundle, as those of MONAI's model zoo are made."""
    (root / "configs").mkdir(parents=True)
    (root / "models").mkdir()
    shape = {"spatial_shape": [64, 32], "num_channels": 3}
    output = {"spatial_shape": [64, 32], "channel_def": {str(i): name for i, name in enumerate(classes)}}
    data = {"inputs": {"image": shape}, "outputs": {"pred": output}}
    (root / "configs" / "metadata.json").write_text(json.dumps({"version": "0.1.0", "network_data_format": data}))
    steps = {key: {"_target_": "Compose", "transforms": parts.pop(key)} for key in ("preprocessing", "postprocessing")}
    device = "$torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')"
    config = {"bundle_root": ".", "device": device, "inferer": {"_target_": "SimpleInferer"}, **parts, **steps}
    (root / "configs" / "inference.json").write_text(json.dumps(config))
    torch.save(network.state_dict(), root / "models" / "model.pt")
    return root


@pytest.fixture(scope="module")
def tool_bundle(tmp_path_factory):
    """Marks what is red; resizes before and back after, as endoscopic_tool_segmentation does."""
    settings = {"spatial_dims": 2, "in_channels": 3, "out_channels": 2, "kernel_size": 1, "conv_only": True}
    network = Convolution(**settings)
    with torch.no_grad():
        network.conv.weight.zero_()
        network.conv.weight[1, 0] = 1.0
        network.conv.bias.copy_(torch.tensor([0.5, 0.0]))
    before = [
        *LOADING,
        {"_target_": "Resized", "keys": "image", "spatial_size": [128, 64]},
        {"_target_": "ScaleIntensityd", "keys": "image"},
    ]
    back = {"keys": "pred", "transform": "@preprocessing", "orig_keys": "image", "nearest_interp": False}
    after = [
        {"_target_": "Invertd", **back},
        {"_target_": "AsDiscreted", "keys": "pred", "argmax": True, "to_onehot": 2},
        {"_target_": "Lambdad", "keys": "pred", "func": "$lambda x: x[1:]"},
        {"_target_": "SaveImaged", "keys": "pred", "output_dir": "/nowhere"},
    ]
    parts = {"network_def": {"_target_": "monai.networks.blocks.Convolution", **settings}}
    root = tmp_path_factory.mktemp("bundles") / TOOLS
    return picture_bundle(root, network, ["background", "tools"], preprocessing=before, postprocessing=after, **parts)


@pytest.fixture(scope="module")
def class_bundle(tmp_path_factory):
    torch.manual_seed(3)
    settings = {"spatial_dims": 2, "n_input_channels": 3, "num_classes": 2, "widen_factor": 0.125, "feed_forward": True}
    before = [
        *LOADING,
        {"_target_": "Resized", "keys": "image", "spatial_size": [64, 32]},
        {"_target_": "NormalizeIntensityd", "keys": "image", "channel_wise": True},
        {"_target_": "EnsureTyped", "keys": "image"},
    ]
    after = [{"_target_": "Activationsd", "keys": "pred", "softmax": True}]
    parts = {"network_def": {"_target_": "monai.networks.nets.resnet10", **settings}}
    root = tmp_path_factory.mktemp("bundles") / INBODY
    network = resnet10(**settings)
    return picture_bundle(root, network, ["In body", "background"], preprocessing=before, postprocessing=after, **parts)


@pytest.fixture(scope="module")
def server(label_server, studies, ct_bundle, tool_bundle, class_bundle):
    with label_server(studies, ct_bundle, tool_bundle, class_bundle) as running:
        yield running


@pytest.fixture
def infer(server, label_client):
    def ask(model, image, **params):
        return label_client(server.url, ASK, model=model, image=image, params=params)

    return ask


def post(url: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    """Status and text of the answer."""
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=1800) as answer:
            return answer.status, answer.read().decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def assert_same_label(file: str, expected: nib.Nifti1Image, studies: Path) -> None:
    label, image = nib.load(file), nib.load(studies / "oblique.nii.gz")
    wanted = np.asarray(expected.dataobj)
    assert label.shape == image.shape == wanted.shape
    np.testing.assert_allclose(label.affine, image.affine, atol=1e-4)
    assert 0.2 < wanted.mean() < 0.8, "a label that is all the same proves nothing"
    assert np.array_equal(np.asarray(label.dataobj), wanted)


def test_the_label_is_that_of_monai_bundle_run(infer, expected, studies):
    file, params = infer(CT, "oblique")
    assert_same_label(file, expected, studies)
    assert params["label_names"] == {"covid_region": 1}


def test_a_request_reaches_no_other_file_of_weights(infer, expected, studies):
    assert_same_label(infer(CT, "oblique", model_filename="other.pt")[0], expected, studies)


@pytest.mark.slow
def test_the_label_of_the_stock_app_is_the_same(label_server, label_client, ct_bundle, expected, studies, tmp_path):
    with label_server(studies, ct_bundle, options=("--stock", "--work", str(tmp_path / "work"))) as stock:
        file, _ = label_client(stock.url, ASK, model=CT, image="oblique")
        (tmp_path / "own").mkdir()
        assert_nothing_is_overwritten(stock, label_client, studies, tmp_path / "own")
    assert_same_label(file, expected, studies)


@pytest.mark.parametrize("picture", ["frame", "photo"])
def test_a_2d_mask_is_a_png_of_the_pictures_size_and_orientation(infer, picture):
    file, _ = infer(TOOLS, picture)
    assert file.endswith(".png")
    with Image.open(file) as mask:
        assert (mask.format, mask.mode, mask.size) == ("PNG", "L", (90, 48))
        label = np.asarray(mask)
    assert set(np.unique(label)) == {0, 1}
    red = np.zeros((48, 90), bool)
    red[4:16, 50:84] = True
    assert (label != red).mean() < 0.02, "only the resampled edge may differ"


def test_a_client_may_ask_for_a_2d_mask_in_slicers_format(infer, label_client):
    file, _ = infer(TOOLS, "frame", result_extension=".nrrd")
    script = "import nrrd; a, _ = nrrd.read(given['file']); result = [a.shape, int(a[60, 10])]"
    assert file.endswith(".nrrd")
    assert label_client("http://unused", script, file=file) == [[90, 48], 1]


def test_classes_come_with_their_names_and_scores(infer, class_bundle, studies):
    file, params = infer(INBODY, "frame")
    assert file is None
    wanted = first_probabilities(class_bundle, studies / "frame.png").tolist()
    assert [entry["label"] for entry in params["prediction"]] == ["In body", "background"]
    assert [entry["score"] for entry in params["prediction"]] == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize(
    ("model", "image", "words"),
    [
        (CT, "corrupt", "cannot read it"),
        (CT, "empty", "cannot read it"),
        (CT, "frame", "3 spatial axes"),
        (TOOLS, "oblique", "2 spatial axes"),
        (INBODY, "oblique", "2 spatial axes"),
        (CT, "absent", "among the studies"),
        (CT, "%2Fetc%2Fpasswd", "not a plain name"),
    ],
)
def test_what_a_model_cannot_read_is_one_error_with_the_images_name(server, model, image, words):
    status, text = post(f"{server.url}/infer/{model}?image={image}")
    detail = json.loads(text)["detail"]
    assert status == 422 and words in detail and f"image '{image.replace('%2F', '/')}'" in detail
    assert "Traceback" not in text and "\n" not in detail
    assert post(f"{server.url}/infer/{INBODY}?image=frame")[0] == 200  # it goes on


def first_probabilities(bundle: Path, image: Path) -> torch.Tensor:
    """Softmax of what the network makes of a preprocessed picture."""
    parser = ConfigParser(json.loads((bundle / "configs" / "inference.json").read_text()))
    network = parser.get_parsed_content("network_def").eval()
    network.load_state_dict(torch.load(bundle / "models" / "model.pt", weights_only=True))
    picture = parser.get_parsed_content("preprocessing")({"image": str(image)})["image"]
    with torch.no_grad():
        return network(picture[None]).softmax(1)[0].as_tensor()


@pytest.mark.parametrize("name", ["tool_bundle", "class_bundle"])
def test_what_to_label_next_is_asked_of_2d_models_too(server, studies, request, name):
    bundle = request.getfixturevalue(name)
    body = json.dumps({"model": bundle.name}).encode()
    status, text = post(f"{server.url}/activelearning/uncertainty", body, **{"Content-Type": "application/json"})
    pictures = {"frame": studies / "frame.png", "photo": studies / "photo.jpg"}
    wanted = {i: predictive_uncertainty(first_probabilities(bundle, path)) for i, path in pictures.items()}
    chosen = json.loads(text)
    assert status == 200 and chosen["id"] in wanted, "images that the model cannot read are skipped"
    assert chosen["score"] == pytest.approx(wanted[chosen["id"]], abs=1e-4)


def test_a_model_that_is_not_there_is_said(server):
    status, text = post(f"{server.url}/infer/other?image=oblique")
    assert status == 400 and "no model 'other'" in text and CT in text


def test_nothing_in_a_request_is_run_as_code(infer, tmp_path):
    with pytest.raises(AssertionError, match="is not one of"):
        infer(CT, "oblique", device=f"$open('{tmp_path}/run', 'w')")
    assert not list(tmp_path.iterdir())


def assert_nothing_is_overwritten(server, label_client, studies, folder):
    """A client of whatever kind reaches the hospital's images through links, by tags and ids, and the weights."""
    (mask := folder / "mask.nii.gz").write_bytes(b"not a scan")
    given = {"image": "oblique", "file": str(mask), "outside": str(folder / "outside"), "server": server.url}
    before = {path: path.read_bytes() for path in studies.iterdir()}
    refused = label_client(server.url, TAMPER, **given, model=CT)
    assert all("not a plain name" in answer for answer in refused[:3]), refused
    assert "is not replaced from here" in refused[3] and refused[4:7] == [403, 403, 403]
    assert "there is no image" in refused[7] and "it is no whole" in refused[8]
    assert {path: path.read_bytes() for path in studies.iterdir()} == before
    assert {path.name for path in folder.iterdir()} == {"mask.nii.gz"}


def test_no_client_changes_images_weights_or_other_files(server, label_client, studies, tmp_path):
    assert_nothing_is_overwritten(server, label_client, studies, tmp_path)


def test_a_mask_of_another_grid_is_an_error_and_the_study_stays_open(server, label_client, tmp_path):
    """A part of the scan's grid would be taken, as 3D Slicer writes it; this one reaches beyond the scan."""
    nib.save(nib.Nifti1Image(np.ones((60, 50, 20), np.uint8), affine()), tmp_path / "mask.nii.gz")
    reported, labels = label_client(server.url, OTHER_MASK, image="oblique", file=str(tmp_path / "mask.nii.gz"))
    assert "422" in reported and "outside the image" in reported and labels == {}


def test_pages_from_elsewhere_are_refused(server):
    infer = f"{server.url}/infer/{INBODY}?image=frame"
    assert post(infer, Origin="http://elsewhere.example")[0] == 403
    assert post(infer, Host="elsewhere.example")[0] == 403
    assert post(infer, Origin=server.url)[0] == 200


@pytest.mark.slow
def test_weights_that_do_not_fit_stop_the_start(label_server, tool_bundle, studies, tmp_path):
    root = tmp_path / TOOLS
    shutil.copytree(tool_bundle, root)
    weights = torch.load(root / "models" / "model.pt", weights_only=True)
    torch.save({"conv.bias": weights["conv.bias"], "extra": weights["conv.bias"]}, root / "models" / "model.pt")
    work = ("--work", str(tmp_path / "work"))
    words = "error: .*tensor 'conv.weight' is missing; tensor 'extra' is unknown"
    with pytest.raises(AssertionError, match=words), label_server(studies, root, options=work):
        pass


def test_the_server_ends_with_all_it_started_and_leaves_the_studies_alone(server, studies, fedmed_home):
    """The last test of this file: the server is gone afterwards."""
    started = psutil.Process(server.process.pid).children(recursive=True)
    assert started
    folders = [path for path in (fedmed_home / "label").glob("server-*") if path.is_dir()]
    assert folders
    assert server.stop() == 0
    assert not psutil.wait_procs(started, timeout=1800)[1]
    assert not [path for path in folders if path.exists()]
    names = {"oblique.nii.gz", "frame.png", "photo.jpg", "corrupt.nii.gz", "empty.nii"}
    assert {path.name for path in studies.iterdir()} == names
