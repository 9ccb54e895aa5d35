"""The launcher: one clear error for each mistake, before anything is started; and what it tells when all is well."""

import errno
import json
import re
import shutil
import socket
from pathlib import Path

import pytest
import serve
from fedmed_label.bundles import read_bundle
from PIL import Image

from fedmed.bundles.digests import whole_digest
from fedmed.labelling.studies import exclusive


@pytest.fixture
def studies(tmp_path):
    folder = tmp_path / "studies"
    folder.mkdir()
    Image.new("L", (4, 3)).save(folder / "one.png")
    return folder


@pytest.fixture
def launch(monkeypatch, capsys):
    """Return a function: arguments -> exit code, stdout, stderr. Nothing is started."""
    monkeypatch.setattr(serve.signal, "signal", lambda *_: None)
    monkeypatch.setattr(serve, "Server", StoppedAtOnce)

    def run(*arguments):
        """Bundles here are not FedMed's: a person trusts them."""
        folders = [each for each in arguments if isinstance(each, Path) and (each / "configs").is_dir()]
        trust = [word for folder in folders for word in ("--trust", whole_digest(folder))]
        code = serve.main([str(argument) for argument in (*arguments, *trust)])
        return code, *capsys.readouterr()

    return run


class StoppedAtOnce:
    """Stands for a server that the user ends as soon as it is ready."""

    def __init__(self, folder, bundles, studies, address, variables, verbose):
        self.process, self.variables = self, variables
        assert (folder / "model" / bundles[0].name / "models" / "model.pt").is_file() and (folder / "main.py").is_file()

    def wait_until_ready(self):
        pass

    def wait(self):
        raise serve.Ended

    def stop(self):
        pass


def refused(outcome):
    """The error of a launch that was refused: one line, no traceback."""
    code, _, text = outcome
    assert code == 2 and text.startswith("error: ") and "Traceback" not in text
    return text


def test_a_server_that_starts_says_what_to_do(launch, make_bundle, studies, fedmed_home):
    code, said, _ = launch(studies, make_bundle(), "--port", free_port())
    assert code == 0
    for words in ("http://127.0.0.1:", "lesion_ct_segmentation (3D segmentation)", "labels/final", "3D Slicer"):
        assert words in said
    assert "OHIF: needs a DICOMweb server" in said and "WARNING" not in said
    assert not list((fedmed_home / "label").glob("server-*"))


@pytest.fixture
def started(monkeypatch):
    """Rules of the servers that are started, and what else their environment is made of."""
    started = []
    monkeypatch.setattr(serve, "environment", lambda folder, rules, *rest: started.append((rules, *rest)) or {})
    return started


def test_an_open_server_is_warned_of_and_called_by_its_own_names_alone(launch, make_bundle, studies, started):
    arguments = ("--host", "0.0.0.0", "--name", "Scans.Example", "--max-upload", "7", "--port", free_port())
    code, said, _ = launch(studies, make_bundle(), *arguments)
    assert code == 0 and "WARNING: everyone who reaches 0.0.0.0" in said and "no password" in said
    (rules, *_), hosts = started[0], started[0][0].hosts
    assert {"127.0.0.1", "localhost", "scans.example", socket.gethostname().lower()} <= hosts
    assert not hosts & {"", "0.0.0.0", "::"} and rules.upload == 7 << 20 and not rules.started


def test_what_clients_may_do_is_asked_for(launch, make_bundle, studies, tmp_path, started):
    token = tmp_path / "token"
    arguments = ("--allow-delete", "--token", token, "--host", "0.0.0.0", "--port", free_port())
    _, said, _ = launch(studies, make_bundle(), *arguments)
    rules, _, place = started[0]
    assert rules.started == {"delete"} and place == token and not rules.token
    assert token.read_text().strip() not in said and f"as password what is in {token}" in said
    assert "without encryption" in said and "no password" not in said


def test_clients_are_told_colour_and_codes_of_each_segment(make_bundle):
    root = make_bundle()
    path = root / "configs" / "metadata.json"
    said = {"name": "lesion", "label": "the lesion", "colour": "#ff9a2e", "code": {"value": "1", "meaning": "Lesion"}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classes": [said]}))
    (label,) = read_bundle(root).label_info
    assert (label["name"], label["idx"], label["color"]) == ("lesion", 1, [255, 154, 46])
    segment = label["segmentAttribute"]
    assert segment["SegmentLabel"] == "the lesion" and segment["recommendedDisplayRGBValue"] == label["color"]
    code = {"CodeValue": "1", "CodingSchemeDesignator": "SCT", "CodeMeaning": "Lesion"}
    assert segment["SegmentedPropertyTypeCodeSequence"] == code
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classes": []}))
    assert "color" not in read_bundle(root).label_info[0]


def test_a_bundle_that_would_run_code_is_refused_with_its_digest(make_bundle, studies, tmp_path, capsys):
    bundle, ran = make_bundle(), tmp_path / "ran"
    network = {"network_def": f"$__import__('os').mknod({str(ran)!r})"}
    (bundle / "configs" / "inference.yaml").write_text(json.dumps(network))
    assert serve.main([str(studies), str(bundle)]) == 2
    assert f"Its digest is {whole_digest(bundle)}, signed by nobody" in capsys.readouterr().err and not ran.exists()


def test_the_kind_of_a_bundle_that_nobody_trusts_is_not_imported(make_bundle, studies, capsys, monkeypatch):
    bundle = make_bundle()
    (bundle / "configs" / "federation.yaml").write_text("kind: antigravity.Kind")
    monkeypatch.setattr("fedmed.kinds.find_kind.import_named", lambda path: pytest.fail(f"{path} was imported"))
    assert serve.main([str(studies), str(bundle)]) == 2 and "--trust" in capsys.readouterr().err


def without(name):
    return lambda bundle: (bundle / name).unlink()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (shutil.rmtree, "the folder does not exist"),
        (without("configs/metadata.json"), "is not a bundle: configs/metadata.json is missing"),
        (without("configs/inference.yaml"), "is not a bundle: configs/inference.yaml is missing"),
        (without("models/model.pt"), "has no weights: models/model.pt is missing"),
        (lambda b: (b / "models/model.pt").rename(b / "models/pretrained.pt"), "a pre-trained encoder and no model"),
    ],
)
def test_a_folder_that_is_not_a_whole_bundle(launch, make_bundle, studies, damage, words):
    bundle = make_bundle()
    damage(bundle)
    assert words in refused(launch(studies, bundle))


@pytest.mark.parametrize(
    "name", ["lesion_ct", "lesion_detection_segmentation", "lesion segmentation", "a,b_segmentation"]
)
def test_a_name_that_does_not_say_the_task(launch, make_bundle, studies, name):
    assert re.search("rename it to|name the folder", refused(launch(studies, make_bundle(name))))


@pytest.mark.parametrize(
    ("kind", "together"), [("classification", False), ("phases", False), ("presence", True), (None, False)]
)
def test_what_is_answered_is_the_kinds_to_say(make_bundle, kind, together):
    bundle = make_bundle("frames_classification", axes=2)
    if kind:
        (bundle / "configs" / "federation.yaml").write_text(f"kind: {kind}")
    proposal = read_bundle(bundle).proposal
    assert proposal.scores and proposal.together is together


@pytest.mark.parametrize("place", ["federation.yaml", "inference.yaml"])
def test_a_kind_without_an_answer_about_an_image(launch, make_bundle, studies, place):
    """The kind that an overlay made of a bundle is baked into what infers."""
    bundle = make_bundle("frames_classification", axes=2)
    (bundle / "configs" / "federation.yaml").write_text("kind: phases")
    path = bundle / "configs" / place
    former = json.loads(path.read_text()) if place.startswith("inference") else {}
    path.write_text(json.dumps({**former, "kind": "phases_over_time"}))
    text = refused(launch(studies, bundle))
    assert f"{place}: a model of the kind 'phases_over_time' has no answer about a single image" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data.pop("network_data_format"), "'network_data_format' is missing"),
        (lambda data: data["network_data_format"]["outputs"]["pred"].pop("channel_def"), "'channel_def' is missing"),
        (lambda data: data["network_data_format"].update(inputs={"scan": {}}), "MONAI Label needs 'image'"),
        (lambda data: data["network_data_format"]["inputs"]["image"].update(spatial_shape=[1]), "1 spatial axes"),
    ],
)
def test_metadata_that_cannot_be_used(launch, make_bundle, studies, change, words):
    path = make_bundle() / "configs" / "metadata.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    assert words in refused(launch(studies, path.parents[1]))


def test_two_bundles_of_one_name(launch, make_bundle, studies):
    outcome = launch(studies, make_bundle(place="a"), make_bundle(place="b"))
    assert "two bundles are called 'lesion_ct_segmentation'" in refused(outcome)


def test_a_bundle_that_the_stock_app_cannot_serve(launch, make_bundle, studies):
    text = refused(launch(studies, make_bundle(axes=2), "--stock"))
    assert "cannot serve 2D segmentation; leave out --stock" in text


def test_a_port_in_use(launch, make_bundle, studies):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"port {port} is in use" in refused(launch(studies, make_bundle(), "--port", port))


def test_a_port_that_is_not_permitted(launch, make_bundle, studies, monkeypatch):
    def refuse(*_):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    assert "choose a --port from 1024" in refused(launch(studies, make_bundle(), "--port", 80))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--max-upload", "0"), "number of megabytes"),
        (("--port", 70000), "give a number from 1 to 65535"),
        (("--host", "192.0.2.1"), "is not an address of this machine"),
        (("--host", "nowhere.invalid"), "no such host"),
        (("--device", "gpu"), "give cpu, cuda or cuda:N"),
    ],
)
def test_options_that_make_no_sense(launch, make_bundle, studies, options, words):
    assert words in refused(launch(studies, make_bundle(), *options))


@pytest.mark.parametrize(("folder", "words"), [("nowhere", "does not exist"), ("empty", "holds no image")])
def test_studies_that_are_not_there(launch, make_bundle, tmp_path, folder, words):
    (tmp_path / "empty").mkdir()
    assert words in refused(launch(tmp_path / folder, make_bundle(), "--port", free_port()))


def test_a_work_folder_that_cannot_be_written(launch, make_bundle, studies, tmp_path):
    (tmp_path / "file").write_text("")
    outcome = launch(studies, make_bundle(), "--port", free_port(), "--work", tmp_path / "file" / "work")
    assert "cannot be" in refused(outcome) and "--work" in outcome[2]


def test_studies_that_another_server_serves(launch, make_bundle, studies, tmp_path):
    """It would take the other's images away, and both would write MONAI Label's notes."""
    work = tmp_path / "work"
    assert launch(studies, make_bundle(), "--port", free_port(), "--work", work)[0] == 0
    with exclusive(work):
        outcome = launch(studies, make_bundle(place="b"), "--port", free_port(), "--work", work)
        assert "another label server serves" in refused(outcome)
    assert launch(studies, make_bundle(place="c"), "--port", free_port(), "--work", work)[0] == 0


def test_a_dicomweb_server_that_does_not_answer(launch, make_bundle):
    url = f"http://127.0.0.1:{free_port()}/dicom-web"
    assert "no DICOMweb server answers there" in refused(launch(url, make_bundle(), "--port", free_port()))


def test_a_home_that_cannot_be_written(launch, make_bundle, studies, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path / "file"))
    outcome = launch(studies, make_bundle(), "--port", free_port(), "--work", tmp_path / "work")
    assert "set FEDMED_HOME" in refused(outcome)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
