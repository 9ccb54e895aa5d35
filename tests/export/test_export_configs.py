"""Configs say by themselves what the weights were trained with."""

import shlex
from pathlib import Path

import pytest
import yaml
from monai.bundle import ConfigParser

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import footprint, merged
from fedmed.bundles.digests import write_digests
from fedmed.bundles.find import SHIPPED_BUNDLES
from fedmed.bundles.given_bundle import open_given
from fedmed.errors import ExportError
from fedmed.export.configs import to_yaml, write_configs
from fedmed.export.exporter import exporter_of
from fedmed.export.folder import check_target, copy_parts
from fedmed.methods.method import Method

CONFIGS = SHIPPED_BUNDLES / "covid_ct_segmentation" / "configs"
LEFT = {"cpu", "evaluate", "unlabelled", "consistency", "agreement", "strong_views", "random_gamma"}


@pytest.fixture
def exported(tmp_path):
    """Return a function: overlays, overrides -> (folder with the exported configs, names of overlays left)."""

    def exported(*overlays, **overrides):
        bundle = Bundle("covid_ct_segmentation", overlays, overrides)
        folder = tmp_path / "_".join(["bundle", *overlays])
        copy_parts(bundle.root, folder)
        return folder / "configs", set(write_configs(exporter_of(bundle, Method()), folder))

    return exported


@pytest.mark.parametrize("overlay", ["demo", "coarse", "segresnet", "lidc", "lidc_small", "cpu"])
def test_what_is_baked_in_is_what_monai_merges(exported, overlay):
    folder, _ = exported(overlay)
    for main in ("inference", "train"):
        expected = ConfigParser.load_config_files([str(CONFIGS / f"{main}.yaml"), str(CONFIGS / f"{overlay}.yaml")])
        installed = ConfigParser.load_config_file(CONFIGS / f"{main}.yaml")
        made = ConfigParser.load_config_file(folder / f"{main}.yaml")
        assert made == {key: expected[key] for key in installed}, f"{main}: all of its own ids, and no other"
        assert list(made) == list(installed)


def test_overrides_win_and_stay_where_they_belong(exported):
    folder, _ = exported("demo", window_size=[32, 32, 16], patch_size=[16, 16, 16], threshold=0.3)
    inference, train = (ConfigParser.load_config_file(folder / f"{name}.yaml") for name in ("inference", "train"))
    assert inference["window_size"] == train["window_size"] == [32, 32, 16] and inference["threshold"] == 0.3
    assert train["patch_size"] == [16, 16, 16] and "patch_size" not in inference


@pytest.mark.parametrize(
    ("overlays", "left"), [((), LEFT), (("demo",), LEFT), (("segresnet",), LEFT), (("coarse", "cpu"), LEFT - {"cpu"})]
)
def test_overlays_of_other_models_are_gone(exported, overlays, left):
    folder, names = exported(*overlays)
    assert names == left
    files = {path.name for path in folder.iterdir()}
    expected = {f"{name}.yaml" for name in left | {"inference", "train", "federation"}}
    assert files == expected | {"metadata.json", "logging.conf"}


def test_any_overlay_that_moves_the_network_or_its_input_is_gone(tmp_path):
    """Also one that no list could know, through what the network or the preparation refers to."""
    for name, text in {
        "inference": "size: 8\nspacing: [1, 1]\nextra: 1\nnetwork_def: {_target_: Net, n: '$@size * 2'}\n"
        "preprocessing: [{_target_: Spacingd, pixdim: '@spacing::0'}]\ninferer: {_target_: I, batch: '@extra'}\n",
        "train": "size: 8\nnetwork_def: {_target_: Net, n: '$@size * 2'}\nlr: 1\n",
        "wide": "size: 16\n",
        "fine": "spacing: [2, 2]\n",
        "deep": "'network_def::n': 3\n",
        "rate": "lr: 2\n",
        "batches": "extra: 4\n",
        "nested": "'train::handlers': []\n",
    }.items():
        (tmp_path / f"{name}.yaml").write_text(text)

    def moves(name):
        mains, fitted = [tmp_path / "inference.yaml", tmp_path / "train.yaml"], ("network_def", "preprocessing")
        with_it = [footprint(merged(main, [tmp_path / f"{name}.yaml"]), fitted) for main in mains]
        return with_it != [footprint(merged(main), fitted) for main in mains]

    assert [name for name in ("wide", "fine", "deep", "rate", "batches", "nested") if moves(name)] == [
        *("wide", "fine", "deep")
    ]


def test_a_new_id_comes_along_when_something_needs_it(tmp_path):
    (tmp_path / "inference.yaml").write_text("network_def: {_target_: Net, n: 1}\n")
    (tmp_path / "big.yaml").write_text(
        "network_def: {_target_: Net, n: '$@width * @deeper'}\nwidth: 2\ndeeper: 3\nlr: 1\n"
    )
    assert merged(tmp_path / "inference.yaml", [tmp_path / "big.yaml"]) == {
        "network_def": {"_target_": "Net", "n": "$@width * @deeper"}, "width": 2, "deeper": 3
    }  # fmt: skip


def test_yaml_is_what_it_was_and_reads_well(exported):
    config = ConfigParser.load_config_file(CONFIGS / "train.yaml") | {"rate": 1e-8, "nothing": None, "text": "@x: %y"}
    text = to_yaml(config, "first line\nsecond")
    assert yaml.safe_load(text) == config and list(yaml.safe_load(text)) == list(config)
    assert text.startswith("# first line\n# second\n") and "pixdim: [0.8, 0.8, 5.0]" in text and "&id" not in text
    assert max(map(len, text.splitlines())) <= 120
    folder, _ = exported("demo")
    assert "with the overlay demo:" in (folder / "inference.yaml").read_text().splitlines()[0]


def overlays_of(name):
    configs = {path.stem for path in (SHIPPED_BUNDLES / name / "configs").glob("*.yaml")}
    return [[], *([overlay] for overlay in sorted(configs - {"train", "inference", "federation"}))]


@pytest.mark.parametrize("name", sorted(path.name for path in SHIPPED_BUNDLES.iterdir() if path.is_dir()))
def test_what_an_export_writes_is_opened_as_a_given_bundle_is(name, tmp_path):
    """Of every bundle with each of its overlays: its own expressions are the installed bundle's, and no others."""
    for overlays in overlays_of(name):
        bundle = Bundle(name, overlays)
        exporter, folder = exporter_of(bundle, Method()), tmp_path / "_".join([name, *overlays])
        (folder / "configs").mkdir(parents=True)
        write_configs(exporter, folder)
        (folder / "configs" / "metadata.json").write_text("{}")
        (folder / "models").mkdir()
        (folder / "models" / "model.pt").touch()
        write_digests(folder, {"bundle": name, "overlays": exporter.baked[0]})
        opened = open_given(folder, tmp_path / "place" / folder.name)
        made = [ConfigParser.load_config_file(root / "configs" / "inference.yaml") for root in (folder, opened)]
        assert made[0] == made[1], overlays


@pytest.mark.parametrize(
    ("bundle", "what"),
    [
        ("surgical_phase_classification", "videos"),
        ("covid_ct_segmentation", "images"),
    ],
)
def test_the_last_step_names_what_the_model_is_run_on(bundle, what, tmp_path):
    *_, line, adapted = exporter_of(Bundle(bundle), Method()).next_steps(Path(f"my runs/out_{bundle}"))
    assert line.startswith(f"on a folder of {what}:") and f"--dataset_dir /data/{what} " in line
    *_, adapted, target = shlex.split(adapted)
    assert adapted == f"/data/{what}"
    check_target(tmp_path / target, replace=False)  # the command may be pasted: its last word is a bundle's name


@pytest.mark.parametrize(
    ("name", "proposed"),
    [
        ("my_lesions", "my_lesions_segmentation or"),
        ("a b_segmentation", "a_b_segmentation or"),
        ("ä", "my_model_segmentation"),
    ],
)
def test_a_name_that_hides_the_task_is_refused_with_one_that_is_taken(tmp_path, name, proposed):
    with pytest.raises(ExportError, match="must end in") as refused:
        check_target(tmp_path / name, replace=False)
    assert f"write {tmp_path}/{proposed}" in str(refused.value)
    check_target(Path(str(refused.value).split()[-1]), replace=False)
