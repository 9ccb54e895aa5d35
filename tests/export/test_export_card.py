"""The model card says what the files say, never more protection than sites told, and nothing that names a site."""

import json
from types import SimpleNamespace

import pytest
from markdown_it import MarkdownIt

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import initial_network
from fedmed.export.card import _rule, _training, card, limits, named, protection, story
from fedmed.export.finished_run import read_finished
from fedmed.export.weights_origin import _protection, anonymous_sites
from fedmed.kinds.presence import Presence
from fedmed.kinds.segmentation_3d import Segmentation3D
from fedmed.systems.covid_fssl.method import Consistency


@pytest.fixture
def federation(exported_bundle):
    return json.loads((exported_bundle / "configs" / "metadata.json").read_text())["federation"]


def test_a_reader_finds_what_she_needs(exported_bundle, federation):
    card = (exported_bundle / "docs" / "README.md").read_text()
    assert "Not a medical device" in card and "0 = background, 1 = COVID-19 lesion" in card
    assert "SegResNet, 111 thousand parameters" in card and "| `pixdim` | 16.0, 16.0, 40.0 |" in card
    for row in federation["sites"]:
        assert f"| {row['site']} |" in card and f"{row['test_dice']:.3f}" in card
    assert "scripts/label.sh /data/images covid_ct_segmentation" in card and "torch" in card
    assert "| ± std | Test HD95 (mm) |" in card and "{{" not in card and "None" not in card
    for line in card.splitlines():
        assert line.count("|") in (0, 3, 8), "a table with a cell too many"


@pytest.mark.parametrize(("overlay", "size"), [("cpu", "18"), ("demo", "10 of width 16 instead of 64")])
def test_a_narrow_network_is_called_by_its_own_size(overlay, size):
    network = initial_network(Bundle("cxr_classification", [overlay]).parser(device="cpu"), 0)
    assert named(network) == f"ClassifierNet around a ResNet-{size}"


def test_limits_follow_the_numbers(federation):
    text = " ".join(limits(federation, Segmentation3D(), Consistency.caution))
    assert "site 3 took no part in the training" in text
    assert "Sites without masks trained on the model's own predictions, which can strengthen its mistakes." in text
    assert "own predictions" not in " ".join(limits(federation, Segmentation3D())), "of a method that has none"
    assert "Warnings" not in text and "refused" not in text
    federation |= {"guard_warnings": 3, "refused_updates": 1}
    text = " ".join(limits(federation, Segmentation3D()))
    assert "Warnings of the server during training: 3" in text and "Updates that the server refused: 1" in text
    for row in federation["sites"]:
        row["test_dice"] = None
    assert "No site has tested this model." in limits(federation, Segmentation3D())


@pytest.fixture
def exporter(opened, finished_run):
    return opened(finished_run)[2]


def test_the_story_says_when_a_site_without_masks_had_some_after_all(federation, exporter):
    assert federation["learned_from_some_labels"] == 0 and "after all" not in story(federation, exporter)
    text = story({**federation, "exchange": {"once": True, "rounds": [1], "names": ["amplitude"]}}, exporter)
    assert "Images never left a site; values of some of them (`amplitude`) did, once, before training." in text
    text = story({**federation, "learned_from_some_labels": 1}, exporter)
    assert "; 1 of those without had masks for some after all" in text


def test_of_videos_the_frames_are_counted_that_sites_train_on(federation):
    many = {"number_of_sites": {"supervised": 2}, "training_cases": {"supervised": 1075}}
    counted = {key: {**dict.fromkeys(federation[key], 0), **values} for key, values in many.items()}
    text = _training({**federation, **counted}, Presence())
    assert text == "Federated training of 2 sites with tables of labels (1075 training frames)"
    assert "training cases)" in _training(federation, Segmentation3D())


def test_the_story_has_the_methods_own_sentence(federation, exporter):
    text, sentence = story({**federation, "model_round": 0}, exporter), exporter.method.card()
    assert "the starting model, which no round improved" in text and sentence and sentence in text
    assert "Updates are averaged by the steps behind them; shared: all layers" in text


def test_a_run_that_ended_early_tells_of_the_rounds_that_there_were(federation, exporter):
    planned = federation["rounds"]
    assert federation["rounds_done"] == planned and f", {planned} rounds of" in story(federation, exporter)
    text = story({**federation, "rounds": 200, "rounds_done": 3, "warm_start_rounds": 10}, exporter)
    assert ", 3 of 200 rounds of" in text and "the first 3 by the sites with masks alone" in text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"weighting": "samples"}, "averaged by the images behind them"),
        ({"weighting": {"by": "reported", "name": "gain"}}, "averaged by the number `gain` that sites report"),
        ({"step": "adamw"}, "behind them, and an optimizer at the server (`adamw`) takes a step towards the result"),
        ({"step": {"by": "sgd", "rate": 0.5}}, "an optimizer at the server (`sgd`)"),
        ({"weighting": {"path": "x.Y"}}, "averaged with weights of the job's own rule"),
        ({"rule": "median"}, "The median of the updates is taken"),
        ({"rule": {"path": "x.Y"}}, "become one by the rule `x.Y`"),
    ],
)
def test_the_rule_of_the_server_in_words(settings, words):
    assert words in _rule(settings)


def test_numbers_of_sites_come_from_scores_and_not_from_names(finished_run):
    """Renamed sites keep their numbers: nothing of a name is in the order."""
    run = read_finished(finished_run)
    rows = [row for _, row in anonymous_sites(run, "selected")]
    swap = {"ct_north": "zz", "ct_east": "aa", "ct_west": "mm"}
    facts = {**run.facts, "sites": {swap[name]: run.facts["sites"][name] for name in reversed(list(swap))}}
    result = {
        **run.result,
        "test": {swap[name]: row for name, row in run.result["test"].items()},
        "validation": {swap[name]: dice for name, dice in run.result["validation"].items()},
    }
    rounds = [
        {**line, "accepted": [swap[name] for name in line["accepted"]],
         "coefficients": {swap[name]: share for name, share in line["coefficients"].items()}}
        for line in run.rounds
    ]  # fmt: skip
    renamed = type(run)(run.folder, run.records, facts, rounds, result)
    assert [row for _, row in anonymous_sites(renamed, "selected")] == rows


def test_what_a_study_named_makes_no_link_tag_or_cell_of_its_own(exported_bundle, exporter):
    evil = "[a](javascript:alert(1))<img src=x onerror=alert(1)>|x\n# y"
    meta = json.loads((exported_bundle / "configs" / "metadata.json").read_text())
    meta["classes"][0] |= {"label": evil[:60]}
    meta["federation"] |= {"hardware": evil, "private_tensors_of": evil, "software": {evil: evil}}
    meta["federation"]["aggregation"]["sharing"] = evil
    for row in meta["federation"]["sites"]:
        row["site"] = evil
    config = exported_bundle / "configs" / "inference.yaml"
    network = initial_network(exporter.bundle.parser(device="cpu"), 0)
    text = card(meta, exporter, config, exported_bundle, network)

    tokens = [child for token in MarkdownIt("commonmark").parse(text) for child in token.children or [token]]
    links = {token.attrs.get("href") for token in tokens if token.type == "link_open"}
    assert links == {"bundle.md", "../LICENSE"}
    assert not {"html_inline", "html_block", "image"} & {token.type for token in tokens}
    assert not [line for line in text.splitlines() if line.startswith("# y")]
    assert text.count("javascript") >= 5


def protected(*lines):
    return protection(_protection(SimpleNamespace(rounds=[{"sites": line} for line in lines])))


def test_without_noise_nothing_is_promised(federation):
    assert protected({"a": {"train_loss": 1.0}}).startswith("No site reported any noise: nothing is promised")
    assert protected({"a": {"clip_norm": 1.0}}).startswith("1 site clipped the updates, none added noise: nothing is")
    assert any(limit.startswith("No site reported any noise") for limit in limits(federation, Segmentation3D()))
    old = {key: value for key, value in federation.items() if key != "protection"}  # exported before
    assert limits(old, Segmentation3D()) == limits(federation, Segmentation3D())


def test_the_largest_epsilon_is_told_and_what_it_means():
    noise = {"clip_norm": 1.0, "noise_multiplier": 2.0, "delta": 1e-5}
    text = protected({"a": {**noise, "epsilon": 3.0}}, {"a": {**noise, "epsilon": 4.5}, "b": {**noise, "epsilon": 4.0}})
    assert text.startswith("2 sites added Gaussian noise to clipped updates, at most ε = 4.5 at δ = 0.00001.")
    assert "not single patients; of other sites nothing is promised" in text
    assert protected({"a": {"clip_norm": 1.0, "noise_multiplier": 2.0}}).startswith(
        "1 site added Gaussian noise to clipped updates."
    )
