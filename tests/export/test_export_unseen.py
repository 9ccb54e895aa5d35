"""The model of a site that never trained: what all share, and the kept mean of the sites' private layers."""

import json
from types import SimpleNamespace

import pytest
import torch
from monai.bundle import ConfigParser

from fedmed.durable_files import save_tensors
from fedmed.errors import ExportError
from fedmed.export.bundle import export_bundle, facts_to_set, site_facts, words_of
from fedmed.export.weights import complete_weights
from fedmed.recovery.model_store import MEAN_OF_PRIVATE

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_west": "evaluate"}
DECODER = ("conv_final.", "up_samples.", "up_layers.")
SHARES = {"ct_north": 0.75, "ct_south": 0.25}


@pytest.fixture
def kept(written, opened):
    """Return a function: a run whose server has kept a mean, all values 0.5; ``meta`` and ``drop`` damage the file."""

    def kept(drop=(), **meta):
        folder = written(sharing="block_6", sites=SITES)
        run, store, _ = opened(folder)
        path = run.records / "result.json"
        row = {"dice_mean": 0.4, "dice_std": 0.1, "n_cases": 2, "decoder_of": "all"}
        entry = {"model": "selected", "from": "all", "asked": sorted(SHARES), "kept": True, "weights": SHARES}
        path.write_text(json.dumps({**run.result, "test": {"ct_west": row}, "releases": [entry]}))
        mean = {n: torch.full_like(t, 0.5) for n, t in store.initial.items() if n.startswith(DECODER) and n not in drop}
        said = {"round": 0, "weighting": "samples", "weights": SHARES, **meta}
        save_tensors(
            run.records.parent / "app_server" / MEAN_OF_PRIVATE.format(round=0), {"tensors": mean, "meta": said}
        )
        return folder

    return kept


def test_shared_tensors_are_the_runs_and_private_ones_the_mean(kept, opened):
    run, store, exporter = opened(kept())
    weights = complete_weights(run, store, exporter, "last", unseen="ct_west")
    shared = run.model("last")[1]
    for name, tensor in weights.tensors.items():
        assert torch.equal(tensor, torch.full_like(tensor, 0.5) if name.startswith(DECODER) else shared[name])
    assert weights.mean.weights == SHARES and weights.round == 0
    assert complete_weights(run, store, exporter, "last", unseen="a_clinic_that_had_no_part").mean is not None


@pytest.mark.usefixtures("no_torchscript")
def test_the_bundle_says_who_released_and_with_which_weights_and_names_nobody(kept, tmp_path):
    out = export_bundle(kept(), tmp_path / "x_segmentation", unseen="ct_west").out
    saved = torch.load(out / "models" / "model.pt", weights_only=True)
    assert all(torch.equal(t, torch.full_like(t, 0.5)) for n, t in saved.items() if n.startswith(DECODER))
    federation = json.loads((out / "configs/metadata.json").read_text())["federation"]
    assert federation["private_tensors_of"] is None and federation["private_tensors_mean"]["weighting"] == "samples"
    assert sorted(federation["private_tensors_mean"]["weights"].values()) == [0.25, 0.75]
    card = (out / "docs/README.md").read_text()
    for words in (
        "the mean of those that these sites released, by their training samples: site",
        "nobody trained all its layers together",
        "scored with the mean of the sites' private layers",
    ):
        assert words in card
    assert not any(site in card + json.dumps(federation) for site in SITES)


@pytest.mark.parametrize(
    ("damage", "unseen", "message"),
    [
        ({}, "ct_south", "'ct_south' trained in this run and has layers of its own; export those: --site ct_south"),
        ({"round": 3}, "ct_west", "is not of the model after round 0"),
        ({"drop": ("conv_final.2.conv.weight",)}, "ct_west", "is not of the model after round 0"),
        ({"weights": {"ct_north": 1.0}}, "ct_west", "is not of the model after round 0"),
        ({"weights": {}}, "ct_west", "is damaged: it does not hold a mean"),
    ],
)
def test_what_cannot_be_exported_is_named(kept, opened, damage, unseen, message):
    run, store, exporter = opened(kept(**damage))
    with pytest.raises(ExportError, match=message):
        complete_weights(run, store, exporter, "last", unseen=unseen)


def test_a_run_that_kept_nothing_says_what_it_needs(written, opened):
    run, store, exporter = opened(written(sharing="block_6", sites=SITES))
    with pytest.raises(ExportError, match="kept no mean .* 'release_from: all' and 'release_keep: true'"):
        complete_weights(run, store, exporter, "last", unseen="ct_west")
    with pytest.raises(ExportError, match="--site and --unseen are for two models"):
        complete_weights(run, store, exporter, "last", "ct_north", unseen="ct_west")
    run, store, exporter = opened(written(sites=SITES, name="shared"))
    with pytest.raises(ExportError, match="is complete: no tensor is a site's own; leave out --unseen"):
        complete_weights(run, store, exporter, "last", unseen="ct_west")


def test_words_are_written_as_a_site_would():
    words = {"procedure": "partial nephrectomy", "side": "left"}
    assert words_of([f"{name}={text}" for name, text in words.items()]) == words
    for wrong in ("procedure", "Procedure=x", "procedure=$x", "procedure="):
        with pytest.raises(ExportError, match="write it as procedure=nephrectomy"):
            words_of([wrong])


def test_words_are_of_one_site_and_for_bundles_that_take_them(opened, written):
    run, store, _ = opened(written())
    assert site_facts(store.bundle, run.study, None, {}) == {} == facts_to_set(store.bundle, "ct_west", {})
    with pytest.raises(ExportError, match="name that with --site or --unseen"):
        site_facts(store.bundle, run.study, None, {"procedure": "lobectomy"})
    with pytest.raises(ExportError, match="takes no words of a site at inference"):
        site_facts(store.bundle, run.study, "ct_west", {"procedure": "lobectomy"})


def test_a_bundle_for_one_site_has_its_place_and_its_words_where_a_person_says_them(job_of, tmp_path):
    path = tmp_path / "inference.yaml"
    path.write_text("{site_name: alone, site_words: {}, site_index: 0, site_count: 1}")
    parser = lambda **facts: ConfigParser({"words_needed": {"procedure": ["nephrectomy", "lobectomy"]}})  # noqa: E731
    bundle = SimpleNamespace(name="b", config_file=lambda name: path, parser=parser, federation={})
    study, words = job_of(name="x", sites=SITES, rounds=1, steps=1).study, {"procedure": "lobectomy"}
    assert site_facts(bundle, study, None, {}) == {} == facts_to_set(bundle, None, {})
    assert site_facts(bundle, study, "ct_south", {}) == {"site_index": 1, "site_count": 2}
    facts = {"site_name": "ct_west", "site_words": words, "site_index": None, "site_count": 2}
    assert site_facts(bundle, study, "ct_west", words) == facts
    assert facts_to_set(bundle, "ct_west", words) == {}
    needed = {"site_facts_needed": ["site_name", "site_words"], "words_needed": ["procedure"]}
    assert facts_to_set(bundle, "ct_west", {}) == needed
    with pytest.raises(ExportError, match="which the bundle does not know; did you mean 'lobectomy'"):
        site_facts(bundle, study, "ct_west", {"procedure": "lobektomy"})
