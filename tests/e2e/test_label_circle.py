"""An unlabelled site's whole circle: model → label server → a reader's correction → the site's next federated round."""

import json
import shutil

import nibabel as nib
import numpy as np
import pytest
import yaml

from fedmed.federation.loop import run_job
from fedmed.files import CACHE_FOLDER
from fedmed.labelling.studies import read_site
from fedmed_demo import demo_site
from tests.commands import fedmed

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}
READ = """
first = client.next_sample("uncertainty", {})
second = client.next_sample("uncertainty", {})  # another reader
other = client.next_sample("disagreement", {"views": 1, "max_samples": 2, "reserved": 0})
label, _ = client.infer(given["model"], first["id"], {})
import shutil
shutil.copy(label, given["out"])
result = [first, second, other]
"""
SAVE = """
client.save_label(given["image"], given["label"])
result = client.datastore()["objects"][given["image"]]["labels"]["final"]["info"]
"""
# What is left to label; then a client that deletes and uploads images, which must not reach the hospital's files.
AFTERWARDS = """
from monailabel.client.client import MONAILabelUtils
left = [client.next_sample("uncertainty", {"reserved": 0})["id"] for _ in range(3)]
refused = []
for selector in ("/datastore/image?id=", "/datastore/?id="):
    refused.append(MONAILabelUtils.http_method("DELETE", given["server"], selector + given["other"])[0])
try:
    client.upload_image(given["label"], given["other"])
except Exception as error:
    refused.append(str(error))
result = [result, left, refused]
"""


@pytest.fixture
def site_yaml(tmp_path, tiny_site_configs):
    """An unlabelled site of its own: three scans without masks, three for testing."""
    root = tmp_path / "hospital"
    shutil.copytree(demo_site("chest_ct_tiny", "ct_east"), root)
    path = tmp_path / "ct_east.yaml"
    facts = {"site": "ct_east", "data_root": str(root), "device": "cpu", "threads": 1, "cache_dir": str(tmp_path / "c")}
    path.write_text(yaml.safe_dump(facts))
    return path


@pytest.fixture
def next_round(tiny_job, site_yaml, tmp_path):
    """Run one round of the federation: what the site told about it, and how many cases its cache holds then."""

    def run(name):
        run_job(tiny_job(name, sites=TWO), tmp_path / name, {"ct_east": read_site(site_yaml)})
        rounds = (tmp_path / name / "server/simulate_job/fedmed/rounds.jsonl").read_text().splitlines()
        return json.loads(rounds[0])["sites"]["ct_east"], len(list((tmp_path / "c" / CACHE_FOLDER).glob("*.pt")))

    return run


def correct(path, radius):
    """What a reader does: erase all that was proposed, and draw a round lesion."""
    label = nib.load(path)
    mask = np.zeros(label.shape, np.uint8)
    away = [(np.arange(n) - n // 3) * s for n, s in zip(mask.shape, label.header.get_zooms()[:3], strict=True)]
    mask[sum(np.meshgrid(*(a**2 for a in away), indexing="ij")) < radius**2] = 1
    nib.save(nib.Nifti1Image(mask, label.affine), path)
    return int(mask.sum())


def contents(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.mark.slow
def test_a_corrected_label_is_used_in_the_next_round(
    site_yaml, next_round, label_server, label_client, undecided_bundle, tmp_path, capsys
):
    use_labels, label = fedmed("label", "use"), tmp_path / "label.nii.gz"
    root = read_site(site_yaml).data_root
    before = contents(root)
    reported, cached = next_round("before")
    assert "train_supervised_loss" not in reported

    with label_server(site_yaml, undecided_bundle, options=("--allow-delete",)) as server:
        first, second, other = label_client(server.url, READ, model=undecided_bundle.name, out=str(label))
        case = first["id"]
        assert case != second["id"] and first["score"] >= second["score"] and first["rank"] == 1
        assert (first["scored"], first["waiting"], other["scored"], other["waiting"]) == (3, 0, 2, 1)
        image = nib.load(root / "images" / f"{case}.nii.gz")
        answer = nib.load(label)
        assert answer.shape == image.shape and np.allclose(answer.affine, image.affine, atol=1e-3)

        voxels = correct(label, 40)
        given = {"image": case, "other": second["id"], "label": str(label), "server": server.url}
        info, left, refused = label_client(server.url, SAVE + AFTERWARDS, **given)
        assert undecided_bundle.name in info["served"] and case not in left
        assert refused[:2] == [400, 403] and "is not replaced from here" in refused[2]
        assert contents(root) == before

        assert use_labels([str(site_yaml)]) == 0
        shown = capsys.readouterr().out
        assert case in shown and "has now 1 labelled and 2 unlabelled" in shown
        corrected = nib.load(root / "corrected_labels" / f"{case}.nii.gz")
        assert np.asanyarray(corrected.dataobj).sum() == voxels and np.array_equal(corrected.affine, image.affine)
        assert undecided_bundle.name in (root / "corrected_labels/corrections.json").read_text()
        reported, more = next_round("after")
        assert np.isfinite(reported["train_supervised_loss"]) and reported["n_samples"] == 2
        assert more == cached + 1  # the scan with its mask; the other two were prepared before

        correct(label, 60)
        label_client(server.url, SAVE, image=case, label=str(label))
    assert use_labels([str(site_yaml)]) == 0
    assert "replaced" in capsys.readouterr().out
    reported, again = next_round("corrected again")
    assert np.isfinite(reported["train_supervised_loss"]) and again == more + 1
