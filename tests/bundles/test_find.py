"""Bundles are found by plain name, in a fixed order, and compared by what they do."""

import pytest

from fedmed.bundles.find import bundle_digest, find_bundle
from fedmed.bundles.load import Bundle
from fedmed.errors import BundleError, OverrideError


def make_bundle(folder, name="demo_segmentation", text="a: 1\n"):
    configs = folder / name / "configs"
    configs.mkdir(parents=True)
    (configs / "metadata.json").write_text("{}")
    (configs / "train.yaml").write_text(text)
    return folder / name


def test_site_folder_wins_over_environment(tmp_path, monkeypatch):
    make_bundle(tmp_path / "env")
    mine = make_bundle(tmp_path / "site")
    monkeypatch.setenv("FEDMED_BUNDLES", str(tmp_path / "env"))
    assert find_bundle("demo_segmentation", tmp_path / "site") == mine.resolve()
    assert find_bundle("demo_segmentation").parent.name == "env"


def test_unknown_bundle_names_every_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_BUNDLES", str(tmp_path / "env"))
    with pytest.raises(BundleError, match="'nothing' not found.*env"):
        find_bundle("nothing")


@pytest.mark.parametrize("name", ["../secret", "a/b", "", "$x", "a b"])
def test_a_name_cannot_reach_other_folders(name):
    with pytest.raises(BundleError, match="plain name"):
        find_bundle(name)


def test_digest_sees_configs_and_code_but_not_weights(tmp_path):
    bundle = make_bundle(tmp_path)
    first = bundle_digest(bundle)
    (bundle / "models").mkdir()
    (bundle / "models" / "model.pt").write_bytes(b"weights")
    (bundle / "demo_ops" / "__pycache__").mkdir(parents=True)
    (bundle / "demo_ops" / "__pycache__" / "x.py").write_text("cached")
    assert bundle_digest(bundle) == first
    (bundle / "demo_ops" / "x.py").write_text("y = 1")
    second = bundle_digest(bundle)
    assert second != first
    (bundle / "configs" / "train.yaml").write_text("a: 2\n")
    assert bundle_digest(bundle) not in (first, second)


def test_text_where_the_bundle_has_a_number_is_refused():
    with pytest.raises(OverrideError, match="'learning_rate'.*'1e-4' is no number.*1.0e-4"):
        Bundle("covid_ct_segmentation", ["demo"], {"learning_rate": "1e-4"})
    assert Bundle("covid_ct_segmentation", ["demo"], {"learning_rate": 1e-4}).parser()["learning_rate"] == 1e-4
