"""Bundles are opened dozens of times in a run: files are understood once, and never as they were before a change."""

import pytest
import yaml
from monai.bundle import ComponentLocator, ConfigParser

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import BundleParser
from fedmed.files import CHECKOUT

BUNDLES = ("covid_ct_segmentation", "cxr_classification", "surgical_tool_classification")


@pytest.mark.parametrize("name", BUNDLES)
def test_a_bundle_says_what_monai_reads(name):
    bundle = Bundle(name)
    plain = ConfigParser()
    plain.read_config([str(path) for path in bundle.files])
    plain.read_meta(str(bundle.root / "configs" / "metadata.json"))
    ours, theirs = bundle.parser().get(), plain.get()
    assert {key: ours[key] for key in theirs if key != "bundle_root"} == {
        key: value for key, value in theirs.items() if key != "bundle_root"
    }


@pytest.mark.parametrize("name", ["a.yaml", "a.json"])
def test_a_changed_file_is_read_anew_though_size_and_time_are_the_same(tmp_path, name):
    path = tmp_path / name
    for value in (1, 2, 1):
        path.write_text(f'{{"a": {value}}}')
        assert BundleParser.load_config_file(path) == {"a": value}
    path.write_text("{")
    for _ in range(2):
        with pytest.raises((ValueError, yaml.YAMLError)):
            BundleParser.load_config_file(path)
    path.unlink()
    with pytest.raises(FileNotFoundError):
        BundleParser.load_config_file(path)


def test_what_one_caller_changes_no_other_sees(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text("a: {b: [1, 2]}\n")
    BundleParser.load_config_file(path)["a"]["b"].append(3)
    assert BundleParser.load_config_file(path) == {"a": {"b": [1, 2]}}
    first = BundleParser(config=BundleParser.load_config_file(path))
    first["a#b"] = []
    assert BundleParser.load_config_files([str(path)]) == {"a": {"b": [1, 2]}}


def test_monai_is_looked_through_once(monkeypatch):
    looked, look = [], ComponentLocator._find_classes_or_functions
    monkeypatch.setattr(
        ComponentLocator, "_find_classes_or_functions", lambda *given: looked.append(None) or look(*given)
    )
    for _ in range(3):
        parser = BundleParser(config={"net": {"_target_": "SegResNet", "init_filters": 8}})
        assert type(parser.get_parsed_content("net")).__module__ == "monai.networks.nets.segresnet"
    assert len(looked) <= 1


def test_import_statements_hold_for_expressions_anywhere_in_the_file():
    expressions = {"before": "$math.floor(2.5)", "list": ["$math.ceil(2.5)"]}
    parser = BundleParser(config={**expressions, "imports": ["$import math"]})
    assert [parser.get_parsed_content(id) for id in expressions] == [2, [3]]
    with pytest.raises(RuntimeError, match="math"):
        BundleParser(config=expressions).get_parsed_content("before")


def test_files_are_merged_as_monai_merges_them():
    configs = CHECKOUT / "bundles" / "covid_ct_segmentation" / "configs"
    for overlays in (["demo"], ["demo", "segresnet", "consistency"], ["agreement", "strong_views"]):
        files = [str(configs / f"{name}.yaml") for name in ("train", *overlays)]
        assert BundleParser.load_config_files(files) == ConfigParser.load_config_files(files)
    for read in (ConfigParser, BundleParser):  # an overlay of training, over a file that has none
        with pytest.raises(KeyError, match="train"):
            read.load_config_files([str(configs / f"{name}.yaml") for name in ("inference", "consistency")])
