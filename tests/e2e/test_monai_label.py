"""A federation's bundles in MONAI Label, through MONAI Label's own client: what a reader at a hospital gets.

And what the same server answers to those who ask for more than viewers need; its list of routes is in
test_label_doors.py.
"""

import gzip
import json
import os
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import psutil
import pytest
import torch
from monai.bundle import ConfigParser
from monai.bundle import run as bundle_run
from PIL import Image

from fedmed.labelling.views import predictive_uncertainty
from tests.e2e import label_bundles
from tests.e2e.label_bundles import CT, INBODY, STUDIES, TOOLS, affine
from tests.e2e.label_requests import archive, ask, send

APP = Path(__file__).resolve().parents[2] / "monailabel_app"
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
# What 3D Slicer does with an image that the server does not have, and a reader's label.
SLICER = """
info = client.info()
session = client.create_session(given["image"])["session_id"]
known = client.get_session(session)
of_session = client.infer(given["model"], "", {}, session_id=session)[0]
client.upload_image(given["image"], "sent")
label = client.infer(given["model"], "sent", {})[0]
saved = client.save_label("sent", label, params={"label_info": []})
mine = client.download_label("sent", "final")
result = [sorted(info["models"]), bool(known), of_session, label, mine, client.train_status(True)]
"""


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    return label_bundles.write_studies(tmp_path_factory.mktemp("studies"))


@pytest.fixture(scope="module")
def ct_bundle(exported_bundle, studies, tmp_path_factory):
    return label_bundles.ct_bundle(exported_bundle, studies, tmp_path_factory.mktemp("bundles") / CT)


@pytest.fixture(scope="module")
def expected(ct_bundle, studies, tmp_path_factory):
    """What `python -m monai.bundle run` writes for the oblique scan."""
    images, out = tmp_path_factory.mktemp("images"), tmp_path_factory.mktemp("out")
    shutil.copy(studies / "oblique.nii.gz", images)
    changes = {"bundle_root": str(ct_bundle), "dataset_dir": str(images), "output_dir": str(out), "device": "cpu"}
    bundle_run(config_file=str(ct_bundle / "configs" / "inference.yaml"), **changes)
    return nib.load(next(out.rglob("*.nii.gz")))


@pytest.fixture(scope="module")
def tool_bundle(tmp_path_factory):
    return label_bundles.tool_bundle(tmp_path_factory.mktemp("bundles") / TOOLS)


@pytest.fixture(scope="module")
def class_bundle(tmp_path_factory):
    return label_bundles.class_bundle(tmp_path_factory.mktemp("bundles") / INBODY)


@pytest.fixture(scope="module")
def server(label_server, studies, ct_bundle, tool_bundle, class_bundle):
    with label_server(studies, ct_bundle, tool_bundle, class_bundle) as running:
        yield running


@pytest.fixture(scope="module")
def hospital_image(tmp_path_factory):
    """An image elsewhere on the server's machine, which its user may write."""
    path = tmp_path_factory.mktemp("hospital") / "patient.nii.gz"
    path.write_bytes(b"of a patient")
    return path


@pytest.fixture
def infer(server, label_client):
    def of_client(model, image, **params):
        return label_client(server.url, ASK, model=model, image=image, params=params)

    return of_client


def sent_files(fedmed_home):
    """What lies in the folders for what clients send and get; settings that MONAI Label keeps there are no image."""
    places = [path for name in ("tmp", "sessions") for path in (fedmed_home / "label").glob(f"server-*/{name}")]
    return {path for place in places for path in place.rglob("*") if path.is_file() and path.suffix != ".json"}


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
    status, _, text = ask(server, "POST", f"/infer/{model}?image={image}")
    detail = json.loads(text)["detail"]
    assert status == 422 and words in detail and f"image '{image.replace('%2F', '/')}'" in detail
    assert "Traceback" not in text and "\n" not in detail
    assert ask(server, "POST", f"/infer/{INBODY}?image=frame")[0] == 200  # it goes on


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
    headers = {"Content-Type": "application/json"}
    status, _, text = ask(server, "POST", "/activelearning/uncertainty", headers, body)
    pictures = {"frame": studies / "frame.png", "photo": studies / "photo.jpg"}
    wanted = {i: predictive_uncertainty(first_probabilities(bundle, path)) for i, path in pictures.items()}
    chosen = json.loads(text)
    assert status == 200 and chosen["id"] in wanted, "images that the model cannot read are skipped"
    assert chosen["score"] == pytest.approx(wanted[chosen["id"]], abs=1e-4)


def test_a_model_that_is_not_there_is_said(server):
    status, _, text = ask(server, "POST", "/infer/other?image=oblique")
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
    for header, status in (
        ({"Origin": "http://elsewhere.example"}, 403),
        ({"Host": "elsewhere.example"}, 403),
        ({"Origin": server.url}, 200),
    ):
        assert ask(server, "POST", f"/infer/{INBODY}?image=frame", header)[0] == status


# --- who asks for more than viewers need


@pytest.mark.parametrize("kind", ["relative", "absolute", "link"])
@pytest.mark.parametrize("query", ["?uncompress=true", "?uncompress=1&expiry=9", ""])
def test_an_archive_writes_nothing_anywhere(server, hospital_image, fedmed_home, kind, query):
    before = sent_files(fedmed_home)
    status, _, text = send(server, "PUT", f"/session/{query}", "files", "a.tar", archive(kind, hospital_image))
    assert status == 422 and ("'uncompress' is off" in text or "files are not taken" in text)
    assert hospital_image.read_bytes() == b"of a patient" and sent_files(fedmed_home) == before


@pytest.mark.parametrize(
    ("method", "target", "field"),
    [
        ("PUT", "/datastore/?image=zeros", "file"),
        ("PUT", "/session/", "files"),
        ("PUT", "/datastore/label?image=oblique&tag=final", "label"),
        ("POST", "/infer/covid_ct_segmentation", "file"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_zeros_are_no_image_and_are_not_kept(server, fedmed_home, method, target, field, packed):
    zeros = bytes(4 << 20)
    content, before = gzip.compress(zeros) if packed else zeros, sent_files(fedmed_home)
    status, _, text = send(server, method, target, field, "a.nii.gz", content)
    assert status == 422 and "save it again" in text
    listed = json.loads(ask(server, "GET", "/datastore/?output=all")[2])["objects"]
    assert sorted(listed) == sorted(name.split(".")[0] for name in STUDIES)
    assert sent_files(fedmed_home) == before


def test_an_image_of_the_studies_is_judged_by_its_header_before_it_is_read(server, studies):
    header = nib.Nifti1Header()
    header.set_data_dtype(np.int16)
    header.set_data_shape((1900, 1900, 1900))
    header["magic"], header["vox_offset"] = b"n+1", 352
    scan = studies / "oblique.nii.gz"
    kept = scan.read_bytes()
    try:
        scan.write_bytes(gzip.compress(header.binaryblock + bytes(4)))
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _, text = ask(server, "POST", "/infer/covid_ct_segmentation?image=oblique", headers, "params={}")
    finally:
        scan.write_bytes(kept)
    assert status == 422 and "does not fit into memory: 1900×1900×1900" in text


def test_a_request_names_no_file_of_the_server(server, hospital_image):
    for values in ({"image": str(hospital_image)}, {"image": [str(hospital_image)]}, {"label": str(hospital_image)}):
        body = f"params={json.dumps(values)}"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _, text = ask(server, "POST", "/infer/covid_ct_segmentation?image=oblique", headers, body)
        assert status == 422 and "of a patient" not in text


def test_more_than_is_taken_is_refused_before_it_is_sent(server):
    status, _, text = ask(server, "PUT", "/datastore/?image=a", {"Content-Length": str(2 << 30)})
    assert status == 413 and "--max-upload" in text


def test_what_slicer_does_works(server, label_client, studies):
    given = {"image": str(studies / "oblique.nii.gz"), "model": CT}
    models, session, *labels, training = label_client(server.url, SLICER, **given)
    assert models == sorted([CT, TOOLS, INBODY]) and session and not training
    values = [np.asanyarray(nib.load(label).dataobj) for label in labels]
    assert np.array_equal(values[0], values[1]) and np.array_equal(values[1], values[2])
    assert ask(server, "DELETE", "/datastore/label?id=sent&tag=final")[0] == 403
    assert Path(labels[2]).is_file() and ask(server, "GET", "/datastore/label?label=sent&tag=final")[0] == 200


@pytest.mark.parametrize("page", ["/", "/logs/", "/logs/?html=true&refresh=3", "/infer/none"])
def test_pages_load_nothing_from_elsewhere(server, page):
    status, headers, text = ask(server, "GET", page)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; img-src 'self'; ")
    assert headers["X-Content-Type-Options"] == "nosniff" and "<script" not in text
    assert status == (403 if page == "/infer/none" else 200)
    assert headers["Content-Type"].startswith("text/html" if page == "/" else ("text/plain", "application/json"))


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


def test_a_server_ends_when_its_launcher_is_killed_and_the_next_one_removes_its_folder(
    server, studies, fedmed_home, monkeypatch
):
    """The last test of this file: the server is gone afterwards."""
    started = psutil.Process(server.process.pid).children(recursive=True)
    (folder,) = (fedmed_home / "label").glob("server-*")
    server.process.kill()
    assert started and not psutil.wait_procs(started, timeout=1800)[1]
    assert folder.is_dir(), "nobody was left to remove it"
    os.utime(folder, (0, 0))  # a young one may be another launcher's, which does not hold it yet
    monkeypatch.syspath_prepend(APP)
    from fedmed_label.instance import instance

    with instance([], stock=False) as of_the_next:
        assert not folder.exists() and of_the_next.is_dir()
    assert {path.name for path in studies.iterdir()} == STUDIES, "it leaves the studies alone"
