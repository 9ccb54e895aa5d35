"""Parts that a bundle lacks are told at once, in plain words and with their place; the bundles here lack none."""

import json
import shutil

import pytest
import yaml

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.contract import Use, faults
from fedmed.bundles.find import SHIPPED_BUNDLES
from fedmed.bundles.site_facts import FACTS
from fedmed.checks.part_in_job import job_of_bundle
from fedmed.errors import BundleError
from fedmed.federation.client import Client
from fedmed.kinds.find_kind import check_bundle
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.site import parse_site

ROLES = (None, "supervised", "unsupervised", "evaluate")
OVERLAYS = {
    "covid_ct_segmentation": [
        [],
        ["segresnet", "demo"],
        ["coarse"],
        ["demo", "unlabelled", "consistency"],
        ["demo", "unlabelled", "agreement"],
        ["demo", "strong_views", "judged_means"],
        ["demo", "judged_means", "label_confidence", "label_shares"],
        ["lidc", "cpu"],
    ],
    "cxr_classification": [[], ["demo", "linear"], ["demo", "linear_sgd"], ["small", "finetune"], ["demo", "pretrain"]],
    "instrument_segmentation": [[], ["demo"], ["demo", "single_frame"], ["cpu"]],
    "surgical_phase_classification": [[], ["demo"], ["demo", "groupnorm"], ["cpu"]],
    "surgical_tool_classification": [
        [],
        ["demo"],
        ["demo_large"],
        ["resnet", "cpu"],
        ["resnet_gn"],
        ["vgg13", "adamw"],
    ],
}


@pytest.mark.parametrize("name", sorted(path.name for path in SHIPPED_BUNDLES.iterdir() if path.is_dir()))
def test_every_bundle_here_has_all_that_it_needs(name):
    for overlays in OVERLAYS[name]:
        for role in ROLES:
            check_bundle(Bundle(name, overlays), Use(role, exchanges="pretrain" in overlays and role is not None))


@pytest.fixture
def broken(tmp_path, monkeypatch):
    """Return a function: changes of federation.yaml and train.yaml (None removes a key) -> a copy of the CT bundle."""
    root = shutil.copytree(SHIPPED_BUNDLES / "covid_ct_segmentation", tmp_path / "bundles" / "broken")
    monkeypatch.setenv("FEDMED_BUNDLES", str(root.parent))

    def broken(federation=None, train=None):
        for name, changes in (("federation", federation or {}), ("train", train or {})):
            path = root / "configs" / f"{name}.yaml"
            content = yaml.safe_load(path.read_text()) | changes
            path.write_text(yaml.safe_dump({k: v for k, v in content.items() if v is not None}, sort_keys=False))
        return Bundle("broken")

    return broken


def test_all_that_is_missing_is_told_together(broken):
    bundle = broken(
        {"kind": "segmentation_3", "score": None, "sharing": {"AHNet": {"final": []}}, "calibration": 3},
        {"optimizer": None, "evaluate": {"evaluator": {}}, "dataset_dir": None},
    )
    with pytest.raises(BundleError) as error:
        check_bundle(bundle, Use("supervised"))
    text = str(error.value)
    for words in (
        "'kind' is 'segmentation_3'; use classification, encoder, phases, phases_over_time, presence, segmentation_2d, "
        "segmentation_3d",
        "did you mean 'segmentation_3d'?",
        "configs/federation.yaml has no 'score'",
        "'sharing.AHNet' has no group 'full'",
        "'calibration' is 3",
        "configs/train.yaml has no 'optimizer'",
        "has no 'dataset_dir' (folder of the site's images), which each site fills in; write",
        "docs/bundles.md",
    ):
        assert words in text, text
    assert text.count("\n- ") == 6


@pytest.mark.parametrize(
    ("federation", "train", "fault"),
    [
        ({"sharing": None}, {}, "has no 'sharing'"),
        ({"score": {"name": "dice"}}, {}, "'score' needs name, label, test"),
        ({"overridable": ["batchsize"]}, {}, "lists 'batchsize', which no file in configs/ has"),
        ({"ranges": {"batchsize": [1, 2]}}, {}, "'ranges' lists 'batchsize', which no file in configs/ has"),
        ({"ranges": {"batch_size": 3}}, {}, r"'ranges.batch_size' is not \[lowest, highest\]"),
        ({"ranges": 3}, {}, "'ranges' must be lines such as"),
        ({"pretraining": {"overlay": "demo"}}, {}, "'pretraining' is"),
        ({"pretraining": {"overlay": "demo", "encoder": "e", "setting": "s"}}, {}, "configs/demo.yaml has no 'kind'"),
        ({}, {"network": None}, "no 'network'"),
        ({}, {"batch_size": None}, "no 'batch_size'"),
        ({}, {"evaluate": None}, "no 'evaluate#recorder'"),
        ({}, {"validate": None}, "no 'validate#evaluator'"),
        ({}, {"cache_dir": None, "cachedir": "x"}, "no 'cache_dir' .* it has 'cachedir': correct the name"),
    ],
)
def test_each_fault_has_its_sentence(broken, federation, train, fault):
    with pytest.raises(BundleError, match=fault):
        check_bundle(broken(federation, train), Use("supervised"))


def test_what_a_job_has_no_use_for_may_be_missing(broken):
    bundle = broken({}, {"evaluate": None, "cache_dir": None, "seed": None, "classes": None})
    assert faults(bundle, Use("supervised", scores=False)) == []
    assert faults(bundle, Use("unsupervised", labels=False)) == []
    assert faults(bundle, Use()) == []
    assert len(faults(bundle, Use("unsupervised", labels=False, exchanges=True))) == 1
    assert [fault.split(":")[0] for fault in faults(bundle, Use(labels=False), {"classes": "names"})] == [
        "configs/train.yaml has no 'classes'"
    ]


def test_server_and_sites_refuse_a_broken_bundle_before_anything_trains(broken, tmp_path):
    broken({"kind": None}, {"optimizer": None})
    job = job_of_bundle("broken", "supervised")
    with pytest.raises(BundleError, match="'kind' is None"):
        ModelStore(job, tmp_path)
    site = parse_site("here", {"site": "here", "data_root": str(tmp_path), "device": "cpu"}, tmp_path / "site.yaml")
    with pytest.raises(BundleError, match="'kind' is None(.|\n)*no 'optimizer'"):
        Client(job, site, tmp_path, "supervised")


def test_classes_that_the_metadata_describe_wrongly(broken):
    bundle = broken({}, {})
    path = bundle.root / "configs" / "metadata.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"classes": [{"nam": "x"}]}))
    assert ["'classes'" in fault for fault in faults(bundle, Use())] == [True]


def test_facts_of_a_site():
    bundle = Bundle("covid_ct_segmentation", ["demo"])
    parser = bundle.parser(device="cpu", round=3, augment_seed=1)  # the bundle has no use for the last
    assert (parser["device"], parser["round"]) == ("cpu", 3) and "augment_seed" not in parser.config
    with pytest.raises(BundleError, match="'cachedir' is not a fact .* did you mean 'cache_dir'"):
        bundle.parser(cachedir="x")
    with pytest.raises(BundleError, match="'patch_size' is not a fact .*; there are dataset_dir, "):
        bundle.parser(patch_size=3)


def test_a_fact_that_a_bundle_misspells_or_must_have(broken):
    bundle = broken({}, {"cache_dir": None, "cashe_dir": "x", "datalist": None})
    with pytest.raises(BundleError, match=r"bundle 'broken'.* no 'cache_dir' .*; it has 'cashe_dir'"):
        bundle.parser(cache_dir="y")
    with pytest.raises(BundleError, match="has no 'datalist'"):
        bundle.parser(datalist="y")


def test_the_page_names_every_fact_and_id():
    page = (SHIPPED_BUNDLES.parent / "docs" / "bundles.md").read_text(encoding="utf-8")
    from fedmed.bundles import contract

    ids = [*FACTS, *contract.ALWAYS, *contract.TO_TRAIN, *contract.TO_CHOOSE, *contract.TO_SCORE, *contract.TO_EXCHANGE]
    assert [id for id in ids if f"`{id}`" not in page] == []
