"""A chest X-ray classifier in MONAI Label: PNG, JPEG and DICOM, its probabilities, heat maps and what to label next."""

import csv
import json
import urllib.error
import urllib.request

import numpy as np
import pytest
import torch
from monai.bundle import ConfigParser
from monai.bundle import run as bundle_run
from PIL import Image

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.digests import write_digests
from fedmed.export.bundle import _fit_format, _name_classes
from fedmed.export.configs import write_configs
from fedmed.export.exporter import exporter_of
from fedmed.export.folder import copy_parts
from fedmed.labelling.views import predictive_uncertainty
from fedmed.methods.method import Method
from fedmed_demo.xray.image_files import Header, save

NAME = "cxr_classification"
CLASSES = ["normal", "consolidation", "interstitial"]
IMAGES = {"dx": "detector", "cr": "plate", "jpeg": "film", "png": "scan"}
ASK = """
result = [client.infer(NAME, image, {}) for image in given["images"]] + [client.infer(NAME, "scan", {"heat_map": True})]
result = [[file, json.loads(answer) if isinstance(answer, bytes) else answer] for file, answer in result]
""".replace("NAME", repr(NAME))


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """A radiograph of each kind of file, not square, and one that is damaged; below a folder."""
    folder = tmp_path_factory.mktemp("xrays")
    rng = np.random.default_rng(5)
    for number, (kind, name) in enumerate(IMAGES.items()):
        image = rng.random((60, 44), dtype=np.float32) * np.linspace(0.2, 1, 44, dtype=np.float32) ** number
        save(image, folder / "monday", name, kind, Header("p", number, 11 + number, 0.3, "PA"))
    (folder / "damaged.dcm").write_bytes(b"\0" * 128 + b"DICM and then nothing")
    return folder


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    """A classifier as an export makes it, with random weights and a temperature."""
    root, base = tmp_path_factory.mktemp("bundles") / NAME, Bundle(NAME, ["demo"])
    copy_parts(base.root, root)
    exporter = exporter_of(base, Method())
    write_configs(exporter, root)
    path = root / "configs" / "metadata.json"
    content = json.loads(path.read_text())
    _fit_format(content, root, root / "configs" / "inference.yaml")
    _name_classes(content, base.classes, exporter.kind.card)
    path.write_text(json.dumps(content))
    torch.manual_seed(1)
    network = ConfigParser(ConfigParser.load_config_file(root / "configs" / "inference.yaml"))
    network = network.get_parsed_content("network_def")
    network.classifier.weight.data *= 20
    network.temperature.fill_(1.5)
    (root / "models").mkdir()
    torch.save(network.state_dict(), root / "models" / "model.pt")
    write_digests(root, {"bundle": NAME, "overlays": ["demo"]})
    return root


@pytest.fixture(scope="module")
def expected(bundle, studies, tmp_path_factory):
    """Image -> calibrated probabilities, as `python -m monai.bundle run` writes them."""
    out = tmp_path_factory.mktemp("out")
    facts = {"bundle_root": str(bundle), "dataset_dir": str(studies), "output_dir": str(out), "device": "cpu"}
    bundle_run(config_file=str(bundle / "configs" / "inference.yaml"), **facts)
    with (out / "predictions.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if not row["error"]]
    return {row["image"].split("/")[-1].split(".")[0]: [float(row[f"p_{name}"]) for name in CLASSES] for row in rows}


def post(url: str, body: bytes | None = None, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(url, body, headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=1800) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_an_xray_classifier_is_served(label_server, label_client, studies, bundle, expected, tmp_path):
    with label_server(studies, bundle, options=("--work", str(tmp_path / "work"))) as server:
        *answers, (picture, shown) = label_client(server.url, ASK, images=sorted(expected))
        status, chosen = post(f"{server.url}/activelearning/uncertainty", b"{}", **{"Content-Type": "application/json"})
        refused, words = post(f"{server.url}/infer/{NAME}?image=damaged")
        assert set(expected) == set(IMAGES.values())
        for image, (file, answer) in zip(sorted(expected), answers, strict=True):
            assert file is None and [entry["label"] for entry in answer["prediction"]] == CLASSES
            assert [entry["score"] for entry in answer["prediction"]] == pytest.approx(expected[image], abs=1e-5)
        assert shown["prediction"] == answers[sorted(expected).index("scan")][1]["prediction"]
        with Image.open(picture) as heat:
            assert heat.size == (512, 512) and heat.mode == "RGB" and np.ptp(np.asarray(heat), axis=-1).max() > 30
        uncertain = {image: predictive_uncertainty(torch.tensor(p)) for image, p in expected.items()}
        best = max(uncertain, key=uncertain.get)
        assert status == 200 and json.loads(chosen)["id"] == best, chosen
        assert json.loads(chosen)["score"] == pytest.approx(uncertain[best], abs=1e-4)
        assert refused == 422 and "cannot read it" in words and str(studies) not in words, words
