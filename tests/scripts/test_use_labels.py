"""fedmed label use on a site of three scans without masks."""

import json

import pytest
import yaml

from fedmed.labelling.studies import prepare_work
from tests.commands import fedmed
from tests.labelling.scans import ones, save_nifti, tree


@pytest.fixture
def use_labels():
    return fedmed("label", "use")


@pytest.fixture
def site(tmp_path):
    """YAML of the site."""
    root = tmp_path / "site"
    for name in "abc":
        save_nifti(root / f"{name}.nii.gz")
    (root / "datalist.json").write_text(json.dumps({"unlabeled": [{"image": f"{name}.nii.gz"} for name in "abc"]}))
    path = tmp_path / "hospital_b.yaml"
    path.write_text(yaml.safe_dump({"site": "hospital_b", "data_root": str(root)}))
    return path


@pytest.fixture
def work(site):
    return prepare_work(site).folder


def submit(work, name, mask):
    save_nifti(work / "labels" / "final" / f"{name}.nii.gz", mask)


def test_a_label_is_used_and_what_happens_next_is_said(use_labels, site, work, capsys):
    submit(work, "b", ones(120))
    before = tree(site.parent / "site")
    assert use_labels([str(site), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "Nothing was changed: --dry-run.\nhospital_b would have 1 labelled" in shown
    assert tree(site.parent / "site") == before
    assert use_labels([str(site)]) == 0
    shown = capsys.readouterr().out
    assert "0.12" in shown and "new" in shown  # 120 voxels of 0.98 mm³
    assert "hospital_b has now 1 labelled and 2 unlabelled scans for training; with the role 'unsupervised'" in shown
    assert use_labels([str(site), "--work", str(work)]) == 0
    assert "Nothing was changed: no label is new." in capsys.readouterr().out


def test_nothing_saved_yet_is_not_an_error(use_labels, site, work, capsys):
    assert use_labels([str(site)]) == 0
    assert "holds no final label yet" in capsys.readouterr().out


def test_errors_are_one_line(use_labels, site, tmp_path, capsys):
    for arguments, words in (
        ([str(tmp_path / "absent.yaml")], "absent.yaml"),
        ([str(site)], "is not a work folder (studies.json is missing); serve the site first with scripts/label.sh"),
        ([str(site), "--work", str(tmp_path)], "is not a work folder"),
    ):
        assert use_labels(arguments) == 2
        shown = capsys.readouterr()
        assert shown.err.startswith("error: ") and words in shown.err and not shown.out


def test_only_refused_labels_are_an_error(use_labels, site, work, capsys):
    submit(work, "a", ones() * 2)
    assert use_labels([str(site)]) == 2
    shown = capsys.readouterr()
    assert "values other than 0 and 1: 2" in shown.out and "no label could be used" in shown.err
    submit(work, "b", ones())
    assert use_labels([str(site)]) == 0
