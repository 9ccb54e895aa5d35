"""Bundles are found by plain name, in a fixed order, and compared by what they do."""

import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.find import SHARED_OVERLAYS, bundle_digest, find_bundle
from fedmed.errors import BundleError, OverrideError


def make_bundle(folder, name="demo_segmentation", text="a: 1\n"):
    configs = folder / name / "configs"
    configs.mkdir(parents=True)
    (configs / "metadata.json").write_text("{}")
    (configs / "train.yaml").write_text(text)
    (configs / "federation.yaml").write_text("overridable: []\n")
    return folder / name


def test_site_folder_wins_over_environment(tmp_path, monkeypatch):
    make_bundle(tmp_path / "env")
    mine = make_bundle(tmp_path / "site")
    monkeypatch.setenv("FEDMED_BUNDLES", str(tmp_path / "env"))
    assert find_bundle("demo_segmentation", tmp_path / "site") == mine.resolve()
    assert find_bundle("demo_segmentation").parent.name == "env"


def test_a_bundle_in_the_home_folder_wins_over_that_of_the_checkout(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path))
    local = make_bundle(tmp_path / "bundles")
    assert find_bundle("demo_segmentation") == local.resolve()


def test_unknown_bundle_names_every_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_BUNDLES", str(tmp_path / "env"))
    with pytest.raises(BundleError, match="'nothing' not found.*env"):
        find_bundle("nothing")


def test_a_misspelt_bundle_names_the_one_that_is_there(tmp_path):
    make_bundle(tmp_path / "site")
    with pytest.raises(BundleError, match="did you mean 'demo_segmentation'?"):
        find_bundle("demo_segmentaton", tmp_path / "site")
    with pytest.raises(BundleError, match="there are .*demo_segmentation"):
        find_bundle("qqqq", tmp_path / "site")


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


def test_digest_sees_the_overlays_that_every_bundle_can_use(tmp_path):
    bundle, more = make_bundle(tmp_path), tmp_path / "more.yaml"
    first, shared = bundle_digest(bundle, {}), {"more": more}
    assert first == bundle_digest(bundle)
    more.write_text("a: 1\n")
    second = bundle_digest(bundle, shared)
    more.write_text("a: 2\n")
    assert len({first, second, bundle_digest(bundle, shared)}) == 3


def test_every_bundle_can_use_shared_overlays_and_its_own_come_first(tmp_path, monkeypatch):
    bundle = make_bundle(tmp_path / "bundles")
    monkeypatch.setenv("FEDMED_BUNDLES", str(bundle.parent))
    shared = Bundle(bundle.name, ["one_cycle"])
    assert shared.files[1] == SHARED_OVERLAYS["one_cycle"]
    assert shared.digest == bundle_digest(bundle, SHARED_OVERLAYS) != bundle_digest(bundle)
    (bundle / "configs" / "one_cycle.yaml").write_text("a: 2\n")
    assert Bundle(bundle.name, ["one_cycle"]).files[1] == bundle.resolve() / "configs" / "one_cycle.yaml"
    with pytest.raises(
        BundleError,
        match="no overlay 'nothing'. It has: federation, metadata, one_cycle, train; every bundle has: .*one",
    ):
        Bundle(bundle.name, ["nothing"])


def test_facts_of_time_are_in_every_configuration(tmp_path, monkeypatch):
    text = "epoch_length: 4\nmax_epochs: 5\nlate: $@steps_before / @steps_total\nsteps_before: 10\n"
    monkeypatch.setenv("FEDMED_BUNDLES", str(make_bundle(tmp_path / "bundles", text=text).parent))
    bundle = Bundle("demo_segmentation")
    alone = bundle.parser()
    assert [alone.get_parsed_content(id) for id in ("round", "rounds", "steps_total", "late")] == [0, 1, 20, 0.5]
    reported = bundle.parser(round=3, rounds=9, steps_total=40)
    assert [reported.get_parsed_content(id) for id in ("round", "rounds", "steps_total", "late")] == [3, 9, 40, 0.25]


def test_text_where_the_bundle_has_a_number_is_refused():
    with pytest.raises(OverrideError, match="'learning_rate'.*'1e-4' is not a number.*1.0e-4"):
        Bundle("covid_ct_segmentation", ["demo"], {"learning_rate": "1e-4"})
    assert Bundle("covid_ct_segmentation", ["demo"], {"learning_rate": 1e-4}).parser()["learning_rate"] == 1e-4
