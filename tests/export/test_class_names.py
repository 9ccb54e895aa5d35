"""Names that nobody chose are told at an export, and may be given then."""

import json

import pytest

from fedmed.commands.export import show
from fedmed.errors import ExportError
from fedmed.export.bundle import export_bundle
from fedmed.export.class_names import unchosen_names, with_names
from fedmed.export.finished_run import read_finished

OWN = {"clinic": "supervised", "ct_east": "unsupervised"}  # ct_east is of the demo
XRAY = {"bundle": "cxr_classification", "overrides": {"val_interval": 1}, "overlays": ["demo"]}
XRAY |= {"method": {"path": "fedmed.systems.fedmoco.method.Linear"}, "sites": {"clinic": "supervised"}}


@pytest.mark.usefixtures("no_torchscript")
def test_a_bundle_of_own_masks_says_that_its_names_are_the_shipped_ones(written, opened, tmp_path, capsys):
    folder = written(sites=OWN)
    made = export_bundle(folder, tmp_path / "own_segmentation")
    show(made)
    said = capsys.readouterr().err
    assert said.startswith(
        "warning: the study has no 'classes', so what the model marks is called COVID-19 lesion, as "
    )
    assert said.count("\n") == 1 and "--classes liver" in said and "'classes: [liver]' in the study" in said
    named = export_bundle(folder, tmp_path / "named_segmentation", classes=["liver"])
    meta = json.loads((named.out / "configs" / "metadata.json").read_text())
    assert not named.warning and [one["name"] for one in meta["classes"]] == ["liver"]
    assert "liver" in meta["name"] and "COVID" not in json.dumps([meta["name"], meta["task"], meta["label_classes"]])


@pytest.mark.parametrize(
    "said", [{}, {"sites": OWN, "classes": ["lung"]}, {"sites": OWN, "overlays": ["demo", "lidc"]}, XRAY]
)
def test_nothing_is_said_where_the_names_are_right_or_were_chosen(written, opened, said):
    run, store, exporter = opened(written(**said))
    assert unchosen_names(run.study, exporter, store.classes) == ""


@pytest.mark.parametrize(
    ("said", "names", "message"),
    [
        ({"classes": ["lung"]}, ["liver"], r"names its classes \(lung\)"),
        ({}, ["liver", "spleen"], "gives 2 names, and the model marks 1: covid_region"),
        ({}, ["../liver"], "--classes: .*letters a-z"),
        (XRAY, ["a", "b", "c"], "the sites' labels are these names"),
    ],
)
def test_names_that_the_model_cannot_have(written, said, names, message):
    with pytest.raises(ExportError, match=message):
        with_names(read_finished(written(**said)), names)
