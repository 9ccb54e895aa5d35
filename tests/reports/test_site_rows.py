from dataclasses import replace

import pytest

from fedmed.reports import notes, site_rows
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.reports.run_report import report_of
from fedmed.reports.words import count, duration, fixed, flat, join, size
from tests.reports import records

pytestmark = pytest.mark.usefixtures("no_charts")


def summary(run):
    return report_of(run).summary(run)


def note(run):
    return report_of(run).note(run)


def with_result(run, **changes):
    return replace(run, result={**run.result, **changes})


def test_rows_begin_with_labelled_sites_and_have_role_and_label_status(fake_run):
    sites = {"ct_west": "evaluate", "ct_east": "unsupervised", "ct_north": "supervised", "ct_south": "supervised"}
    rows = site_rows.site_rows(read_run(fake_run(sites=sites, rounds=2)))
    assert [row.name for row in rows] == ["ct_north", "ct_south", "ct_east", "ct_west"]
    assert rows[2].labels == "not used in training"
    assert rows[3].labels == "not used in training"
    assert all(row.n_cases == 5 and len(row.cases) == 5 and 0 < row.mean < 1 for row in rows)


def test_labels_are_told_by_what_a_site_reported_and_none_are_claimed_where_nobody_saw_any(fake_run):
    run = read_run(fake_run(rounds=2))
    run.rounds[1].sites["ct_east"]["train_supervised_loss"] = 0.4  # a reader has corrected masks there
    seen = {name: row for name, row in run.result["test"].items() if name != "ct_west"}
    run = with_result(run, test=seen)
    labels = {row.name: row.labels for row in site_rows.site_rows(run)}
    assert labels["ct_east"] == "some, used in training" and labels["ct_west"] == "–"
    assert note(run) == (
        "The model was selected using labelled sites only: ct_north and ct_south. "
        "ct_east trained on labels too, of some images."
    )


def test_each_labelled_sites_own_best_stands_beside_the_selected_model(fake_run):
    run = read_run(fake_run(rounds=2))
    assert "own best" not in page(run) and all(row.site_best is None for row in site_rows.site_rows(run))
    best = {"ct_north": {"dice_mean": 0.777, "model_round": 0}, "ct_south": {"dice_mean": 0.666, "model_round": -1}}
    run = with_result(run, test_own=best)
    text = page(run)
    assert text.count('<th class="n">own best</th>') == 1 and "state/own_best.pt" in text
    assert "0.777<br>" in text and ">initial model</span>" in text
    remark = "Dice of the model that each labelled site scored best itself: ct_north 0.777 (round 1) and ct_south 0.666"
    assert remark in str(report_of(run).table(run).caption)


def test_the_summary_is_made_of_the_numbers(fake_run):
    run = read_run(fake_run(rounds=3))
    means = {"ct_north": 0.8, "ct_south": 0.6, "ct_west": 0.5}
    test = {name: {"dice_mean": mean, "dice_std": 0.1, "n_cases": 2} for name, mean in means.items()}
    text = summary(with_result(run, test=test, best_round=1))
    assert text == (
        "After 3 rounds with 4 sites, the model of round 2 reaches a mean test Dice of 0.70 at the 2 labelled sites "
        "(4 cases) and 0.50 at the unseen site ct_west (2 cases)."
    )


def test_the_summary_counts_only_sites_that_were_tested(fake_run):
    run = read_run(fake_run(rounds=1))
    text = summary(with_result(run, test={"ct_north": {"dice_mean": 0.8}}, best_round=-1))
    assert "the initial model reaches a mean test Dice of 0.80 at the labelled site ct_north." in text
    assert "no site tested it" in summary(with_result(run, test={}))
    kept = {"ct_north": {"n_cases": 0, "min_cases": 5}}  # it did, but has too few cases to say what came of it
    assert "no site shows its test score" in summary(with_result(run, test=kept))
    assert [row.unscored for row in site_rows.site_rows(with_result(run, test=kept))[:2]] == [
        "kept by the site",
        "not tested",
    ]
    html = page(with_result(run, test=kept))
    assert html.count("kept by the site</span>") == 1


def test_an_unfinished_run_says_so(fake_run):
    run = read_run(fake_run(rounds=6, done=2))
    assert summary(run).startswith("This run has finished 2 of 6 rounds and has no final test; the best")
    assert "did not reach its end" in note(run)


def test_the_selection_sentence_is_not_claimed_when_it_is_not_true(fake_run):
    run = read_run(fake_run(rounds=2))
    text = note(with_result(run, selected_by=["ct_north", "ct_east"]))
    assert "labelled sites only" not in text
    assert "ct_east did not train with labels" in text
    for changes in ({"selected_by": []}, {"best_round": None}):
        assert "last aggregate" in note(with_result(run, **changes))


def test_refusals_count_rounds_from_one(fake_run):
    run = read_run(fake_run(rounds=3, refuse=(1,)))
    assert notes.refusals(run) == [(2, "ct_east", "conv_init.weight: 3 values are not finite")]


def test_what_happened_again_is_told_once(fake_run):
    run = read_run(fake_run(rounds=5))
    warnings = [(), (("a, b", "no rsa"),) * 2, (("a, b", "no rsa"),), (("c", "late"),), (("a, b", "no rsa"),)]
    run.rounds = [replace(line, warnings=those) for line, those in zip(run.rounds, warnings, strict=True)]
    run.sites[0].errors = ["no data", "no data", "no disk"]
    assert notes.warnings(run) == [("rounds 2–3, 5", "a, b", "no rsa"), ("round 4", "c", "late")]
    assert notes.errors(run) == [("ct_north", "no data (2 times)"), ("ct_north", "no disk")]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (duration(None), "–"),
        (duration(59.6), "1 min 00 s"),
        (duration(7500), "2 h 05 min"),
        (size(999), "999 B"),
        (size(4_700_000), "4.7 MB"),
        (size(None), "–"),
        (fixed(None), "–"),
        (fixed(0.81249), "0.812"),
        (count(1, "round"), "1 round"),
        (join(["a", "b", "c"]), "a, b and c"),
        (join([]), "none"),
    ],
)
def test_values_read_as_a_person_expects(value, text):
    assert value == text


def test_settings_are_flattened_with_dotted_keys():
    assert flat({"a": {"b": [1, 2], "c": None}, "d": True}) == [("a.b", "1, 2"), ("a.c", "–"), ("d", "True")]
    assert flat({"a": [None, 1e-05], "b": 5960.0, "c": 2}) == [("a", "–, 0.00001"), ("b", "5960"), ("c", "2")]


@pytest.mark.parametrize("name", ["inst_nephro1", "hospital_of_a_long_name_in_the_north"])
def test_a_sites_name_stays_on_one_line_of_a_terminal_and_a_long_one_is_whole_all_the_same(name):
    numbers = {"alone": "0.587", "together": "0.629", "own choice": "0.628", "gain": "+0.042 −0.043 to +0.333"}
    text = records.shown(site_rows.screen_table("t", [{"site": name, "cases": "5", **numbers}], []), width=50)
    assert (name in text) == (len(name) <= site_rows.SHORT)
    assert name in "".join(line[1:].partition("  ")[0].strip() for line in text.splitlines()[4:])
