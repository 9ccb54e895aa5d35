"""A run beside its control: the page and the terminal begin with what the sites without labels bring."""

import shutil
from html import unescape

import pytest

from fedmed.errors import JobError
from fedmed.reports.control_run import differences, read_with_controls
from fedmed.reports.gain import Gain, Step
from fedmed.reports.gain_words import gain_notes, headline, on_screen
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page, write_report
from tests.commands import fedmed
from tests.reports import records

pytestmark = pytest.mark.usefixtures("no_charts")
JOB = "simulate_job/fedmed"
METHOD = "fedmed.systems.covid_fssl.method.Consistency"
NAMED = {"path": METHOD, "args": {}}
LEFT_OUT = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "evaluate", "ct_west": "evaluate"}
WITHOUT = [0.40, 0.50, 0.60, 0.70, 0.80, 0.55]  # Dice of six cases


def score(run, site, values, patients=None):
    """Let a site have these Dice scores."""
    evaluation = run / site / JOB / "evaluation"
    names = [f"case_{n}" for n in range(len(values))]
    rows = "".join(f"{name},{value:.6f}\n" for name, value in zip(names, values, strict=True))
    (evaluation / "cases.csv").write_text(f"case,dice\n{rows}")
    if patients:
        rows = "".join(f"{name},{patient}\n" for name, patient in zip(names, patients, strict=True))
        (evaluation / "patients.csv").write_text(f"case,patient\n{rows}")
    tell(run, site, {"dice_mean": sum(values) / len(values), "dice_std": 0.1, "n_cases": len(values)})


def tell(run, site, test):
    records.change(run, "result", test=records.change(run, "result")["test"] | {site: test})


def change(run, part, **values):
    config = records.change(run, "run")["config"]
    records.change(run, "run", config=config | {part: config.get(part, {}) | values})


def named(run, name):
    records.change(run, "run", job=name)


@pytest.fixture(scope="module")
def _pair(_runs, tmp_path_factory):
    run = shutil.copytree(_runs(rounds=2), tmp_path_factory.mktemp("pair") / "run")
    control = shutil.copytree(_runs(rounds=2, sites=LEFT_OUT), run / "control")
    for place in (run, control):
        records.change(place, "run", kind="segmentation_3d")  # else it is looked up in the bundle again and again
    for site in LEFT_OUT:
        score(control, site, WITHOUT)
        score(run, site, WITHOUT)
    score(run, "ct_east", [value + 0.10 + n / 100 for n, value in enumerate(WITHOUT)])
    return run


@pytest.fixture
def pair(_pair, tmp_path):
    """A run and its control, where an early report finds it: ct_east gains 0.10, 0.11, ..., the others nothing."""
    return shutil.copytree(_pair, tmp_path / "pair")


def gain(run, site):
    return next(gain for gain in read_with_controls(run).steps[0].gains if gain.name == site)


def shown(run):
    """What a terminal shows of a run that was read, on one line."""
    return " ".join(records.shown(*on_screen(run), width=1000).split())


def test_the_headline_is_the_gain_of_the_site_without_labels(pair):
    run = read_with_controls(pair)
    assert [gain.name for gain in run.steps[0].gains] == ["ct_east", "ct_north", "ct_south", "ct_west"]
    east = gain(pair, "ct_east")
    assert (east.ours, east.theirs) == (pytest.approx(0.716667, abs=1e-6), pytest.approx(0.591667, abs=1e-6))
    assert 0.10 <= east.low < 0.125 < east.high <= 0.15
    assert headline(run) == (
        "ct_east, which has no labels: Dice 0.717 with its scans, 0.592 without them: +0.125 "
        f"(95 % interval {east.low:+.3f} to {east.high:+.3f} over 6 cases)."
    )


def test_page_and_terminal_begin_with_it(pair, tmp_path, charts):
    written = write_report(pair, tmp_path)
    html = written.html.read_text()
    first, then = '<p class="summary">ct_east, which has no labels', '<p class="selection">After 2 rounds'
    assert html.index(first) < html.index(then)
    assert html.index("With and without the sites that have no labels") < html.index("Result at each site")
    assert html.count("<td>no difference detected</td>") == 3 and "<td>better off</td>" in html
    assert 'class="gain"' in html and tmp_path / "gain.png" in written.pngs
    text = shown(read_with_controls(pair))
    assert "ct_east no labels 6 0.717 0.592 +0.125" in text
    assert "ct_north labelled 6 0.592 0.592 +0.000 +0.000 to +0.000" in text


def test_without_a_control_nothing_is_said_of_one(pair):
    shutil.rmtree(pair / "control")
    run = read_with_controls(pair)
    html = page(run)
    assert run.steps == [] and on_screen(run) == []
    assert "control" not in html.lower().replace("study", "") and 'class="gain"' not in html
    assert '<p class="summary">After 2 rounds' in html


def test_statistics_of_ones_own_are_told_from_learning(pair):
    sentence = "tested with BatchNorm statistics of their own scans, in the control with those of labelled sites"
    before = read_with_controls(pair)
    assert sentence not in shown(before) and sentence not in page(before)
    for place in (pair, pair / "control"):
        change(place, "study", buffers={"unsupervised": "local"})
        change(place, "study", warm_start={"rounds": 0})
    run = read_with_controls(pair)
    assert sentence in shown(run) and sentence in page(run)


def test_a_site_that_is_worse_off_is_named(pair):
    score(pair, "ct_east", [value - 0.1 - n / 100 for n, value in enumerate(WITHOUT)])
    score(pair, "ct_north", [value - 0.02 + n % 2 / 1000 for n, value in enumerate(WITHOUT)])
    run = read_with_controls(pair)
    assert headline(run).endswith("over 6 cases). It is worse off with them.")
    assert "−0.125 (95 % interval −0." in headline(run)
    assert gain_notes(run) == [
        "Worse off with what the sites without labels bring: ct_north, −0.019 (95 % interval −0.020 to −0.019 over 6 "
        "cases)."
    ]
    assert page(run).count("<td>worse off</td>") == 2


@pytest.mark.parametrize(
    ("ours", "patients", "words"),
    [
        ([value - 0.0003 + n % 2 / 10000 for n, value in enumerate(WITHOUT)], None, "with them, by less than 0.0005."),
        ([value + 0.1 + n / 100 for n, value in enumerate(WITHOUT)], [*"ppqrs", ""], "over 6 cases of 5 patients)."),
        ([*(value + 0.1 for value in WITHOUT), 0.0], None, "+0.100 (6 cases, too few for an interval). 6 patients"),
        ([0.7], None, "+0.300 (1 case, too few for an interval). 1 patient cannot tell."),
    ],
)
def test_a_small_loss_patients_with_several_cases_and_cases_of_both_runs_alone(pair, ours, patients, words):
    score(pair, "ct_east", ours, patients)
    assert words in headline(read_with_controls(pair))


def test_an_interval_that_contains_nothing_new_is_said_so(pair):
    score(pair, "ct_east", [value + sign * 0.1 for value, sign in zip(WITHOUT, [1, -1, 1, -1, 1, -1], strict=True)])
    gained = gain(pair, "ct_east")
    assert (gained.verdict, gained.sought) == ("too few patients to tell", 0.01) and gained.needed > 600
    assert headline(read_with_controls(pair)).endswith(
        f"6 patients cannot tell; about {gained.needed:,} would show a difference of 0.01, at this spread."
    )
    assert f"<td>too few patients to tell (about {gained.needed:,} would)</td>" in page(read_with_controls(pair))


def test_no_difference_is_said_only_of_patients_who_would_have_shown_one():
    few = Gain("a", "no labels", 0.53, 0.5, -0.034, 0.094, 5, 5, 0.0231)
    assert few.needed == 24, "s = 0.0231 √5 = 0.0516, (2.8 s / 0.03)² = 23.2"
    assert (few.verdict, few.finding) == ("too few patients to tell", "too few patients to tell (about 24 would)")
    many = Gain("a", "no labels", 0.504, 0.5, -0.002, 0.010, 99, 99, 0.003023)
    assert (many.needed, many.verdict, many.finding) == (72, "no difference detected", "no difference detected")
    assert Gain("a", "no labels", 0.5, 0.5, 0.0, 0.0, 5, 5, 0.0).verdict == "no difference detected", "no spread"


def test_a_site_that_one_run_did_not_score(pair):
    tell(pair / "control", "ct_east", {"n_cases": 0})
    run = read_with_controls(pair)
    west = gain(pair, "ct_west")
    assert headline(run) == (
        "What ct_east gained is not known: not scored in both runs. ct_west, which is only scored: Dice 0.592 with the "
        f"scans of ct_east, 0.592 without them: {west.text}. No difference was detected."
    )
    assert gain_notes(run) == ["Not scored in both runs: ct_east."]
    assert "–" in page(run)


def test_cases_that_are_not_here_give_no_interval(pair):
    for place in (pair, pair / "control"):
        for site in LEFT_OUT:
            shutil.rmtree(place / site)
    run = read_with_controls(pair)
    assert headline(run).endswith("+0.125 (6 cases, which are not here one by one).")
    assert {gain.verdict for gain in run.steps[0].gains} == {""}
    page(run)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda c: (c / "server" / JOB / "result.json").unlink(), "did not reach its end: 2 of 2 rounds are done"),
        (lambda c: (c / "server" / JOB / "run.json").write_text("{"), "run.json"),
        (lambda c: (c / "server" / JOB / "run.json").unlink(), "stopped before its first round"),
        (lambda c: change(c, "study", steps=99), "'steps' is 20 and 99"),
    ],
)
def test_a_control_that_cannot_be_compared_does_not_keep_the_report_from_being_written(pair, spoil, words):
    spoil(pair / "control")
    run = read_with_controls(pair)
    assert run.steps == [] and words in run.control_problems[0]
    html = page(run)
    assert "This run has no control to compare it with." in html
    assert words in shown(run)
    with pytest.raises(Exception, match="control|run") as error:  # who names it is told at once
        read_with_controls(pair, [pair / "control"])
    assert words in str(error.value)


def test_another_run_than_a_control_is_refused(pair, fake_run):
    with pytest.raises(JobError, match="ct_east trains without labels in it too"):
        read_with_controls(pair, [fake_run(rounds=2)])
    with pytest.raises(JobError, match="other sites train with labels"):
        read_with_controls(pair, [fake_run(rounds=2, sites={**LEFT_OUT, "ct_west": "supervised"})])
    with pytest.raises(JobError, match="in .* no site trains without labels"):
        read_with_controls(pair / "control", [fake_run(rounds=2, sites=LEFT_OUT)])
    assert read_with_controls(pair, [pair / "control"]).steps


def test_a_silent_control_tells_what_was_learned(pair, fake_run):
    silent = fake_run(rounds=2)
    for site in LEFT_OUT:
        score(silent, site, WITHOUT)
    named(silent, "study silent control")
    run = read_with_controls(pair, [silent])
    assert "Dice 0.717 with its scans, 0.592 with nothing learned" in headline(run)
    html = page(run)
    assert "<h2>With and without what is learned without labels</h2>" in html
    assert "take part in every round and learn nothing; what else is done to their scans is done in both." in html
    (silent / "server" / JOB / "result.json").unlink()
    with pytest.raises(JobError, match="--silent-control --resume goes on with it"):
        read_with_controls(pair, [silent])


def test_what_else_the_run_does_to_images_is_said(pair):
    said = "show the model their scans nearer to the brightness of the others', also when a model is tested"
    before = read_with_controls(pair)
    assert said not in shown(before) and said not in unescape(page(before))
    for place in (pair, pair / "control"):
        change(place, "study", method=NAMED, algorithm="gamma_matching")
    run = read_with_controls(pair)
    for text in (shown(run), unescape(page(run))):
        assert said in text and "is missing: 'fedmed simulate JOB --control --resume' makes it" in text
    named(pair / "control", "study silent control")
    text = shown(read_with_controls(pair))
    assert said not in text, "in that of FedMed 0.1 they adapt too"
    assert "0.592 adapted, with nothing learned from them" in text
    change(pair / "control", "study", method=NAMED, algorithm=None, adaptation=None)
    text = shown(read_with_controls(pair))
    assert said in text and "'fedmed simulate JOB --control' tells the two apart" in text


@pytest.fixture
def three(pair, fake_run):
    """A run whose sites adapt, with both controls: ct_east gains 0.08, 0.10, ... by that, and of the rest 0.02, 0.01,
    ... is learned; ct_west, which never trains, gains 0.05 by adaptation alone."""
    adapted = fake_run(rounds=2)
    for site in LEFT_OUT:
        score(adapted, site, WITHOUT)
    score(adapted, "ct_east", [value + 0.08 + n / 50 for n, value in enumerate(WITHOUT)])
    for place in (pair, adapted):
        score(place, "ct_west", [value + 0.05 + n % 2 / 100 for n, value in enumerate(WITHOUT)])
        change(place, "study", method=NAMED, adaptation=["intensity"])
        change(place, "model", overlays=["demo", "own_intensities"], digest="x")
    change(pair / "control", "study", method=NAMED, algorithm=None, adaptation=None)
    change(pair / "control", "model", overlays=["demo"], digest="x")
    named(adapted, "study adapted control")
    adapted.rename(pair / "control_adapted")
    return pair


def test_two_controls_split_the_gain(three, charts):
    run = read_with_controls(three)
    assert [(step.kind, step.gains[0].name) for step in run.steps] == [("left_out", "ct_east"), ("adapted", "ct_east")]
    assert run.control_problems == []
    (east, learned), (west, more) = (
        [next(gain for gain in step.gains if gain.name == site) for step in run.steps]
        for site in ("ct_east", "ct_west")
    )
    assert headline(run) == (
        f"ct_east, which has no labels: Dice 0.592 left out, 0.722 adapted, 0.717 with learning: +0.130 by adaptation "
        f"(95 % interval {east.span} over 6 cases), −0.005 by learning ({learned.span}; "
        f"6 patients cannot tell; about {learned.needed} would show 0.01). "
        f"ct_west, which is only scored: Dice 0.592 left out, 0.647 adapted, 0.647 with learning: +0.055 by adaptation "
        f"(95 % interval {west.span} over 6 cases), nothing by learning (the same scores of 6 cases)."
    )
    assert more.difference == 0
    html, text = unescape(page(run)), shown(run)
    assert "<h2>Left out, adapted and with learning</h2>" in html and html.count("95 % interval, finding</th>") == 2
    assert "in which the sites without labels take part in every round, adapt as in the run, and learn nothing" in html
    assert "they are only scored, and no site adapts; and adapted, in which" in html
    assert "ct_east 6 0.592 0.722 0.717 +0.130" in text and "also when a model is tested" not in text
    assert headline(run) in html and "ring: left out, dot: adapted, disc: with learning" in html


def test_a_site_that_never_trains_and_does_not_adapt_is_told_of_in_the_table_alone(three):
    for place in (three, three / "control_adapted"):
        chosen = {"name": "intensity", "args": {"scored_sites": False}}
        change(place, "study", method=NAMED, adaptation=[chosen])
    run = read_with_controls(three)
    assert "ct_west" not in headline(run) and "ct_west 6 0.592" in shown(run)


def test_losses_are_told_of_each_step(three):
    score(three / "control_adapted", "ct_north", [value - 0.02 + n % 2 / 1000 for n, value in enumerate(WITHOUT)])
    score(three, "ct_east", [value - 0.01 + n % 2 / 1000 for n, value in enumerate(WITHOUT)])
    run = read_with_controls(three)
    assert "; worse off). ct_west" in headline(run)
    assert [note.partition(",")[0] for note in gain_notes(run)] == ["Worse off by adaptation: ct_north"]


def test_of_three_runs_only_cases_count_that_all_scored(three):
    score(three / "control_adapted", "ct_east", WITHOUT[:5])
    first, second = (step.gains[0] for step in read_with_controls(three).steps)
    assert (first.n_cases, second.n_cases) == (5, 5) and first.ours == second.theirs == pytest.approx(0.6)
    tell(three / "control_adapted", "ct_east", {"n_cases": 0})
    run = read_with_controls(three)
    assert headline(run).startswith("What ct_east gained is not known: not scored in all three runs. ct_west, which")
    assert gain_notes(run) == ["Not scored in all three runs: ct_east."] and "–" in page(run)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda c: (c / "server" / JOB / "result.json").unlink(), "JOB --control --resume goes on with it"),
        (lambda c: change(c, "study", method=NAMED, algorithm=None, adaptation=None), "'method' is"),
        (lambda c: named(c, "study control"), "trains without labels in it too"),
        (shutil.rmtree, ""),
    ],
)
def test_without_the_control_that_adapts_the_other_is_still_compared(three, spoil, words):
    spoil(three / "control_adapted")
    run = read_with_controls(three)
    text = shown(run)
    assert "Dice 0.717 with its scans, 0.592 without them: +0.125" in headline(run)
    assert "the control that tells the two apart is missing: 'fedmed simulate JOB --control --resume' makes" in text
    assert len(run.control_problems) == bool(words) and words in "".join(run.control_problems)
    assert ("One of the controls is not compared" in text) == ("One of the controls is not" in page(run)) == bool(words)


def test_a_control_that_leaves_sites_out_may_lack_the_adaptation_and_nothing_else(three):
    change(three / "control", "model", overlays=["demo", "segresnet"])
    assert "'overlays' is ['demo'] and ['demo', 'segresnet']" in read_with_controls(three).control_problems[0]
    change(three / "control", "model", overlays=["demo"])
    change(three / "control", "study", method={"path": METHOD, "args": {"ema_decay": 1}})
    assert "'method' is" in read_with_controls(three).control_problems[0]


def test_the_script_takes_both_folders_and_no_two_that_say_the_same(three, capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("fedmed.reports.run_page.write_pngs", lambda run, out, figures: [])
    script, places = fedmed("report"), [tmp_path / "left", tmp_path / "adapted"]
    for name, place in zip(("control", "control_adapted"), places, strict=True):
        (three / name).rename(place)
    named = [word for place in places[::-1] for word in ("--control", str(place))]
    given = [str(three), "--out", str(tmp_path / "out"), *named]
    assert script(given) == 0
    assert "Dice 0.592 left out, 0.722 adapted, 0.717 with learning" in " ".join(capsys.readouterr().out.split())
    assert script([*given, "--control", str(places[0])]) == 2
    assert "in neither sites adapt" in capsys.readouterr().err


def test_a_site_may_be_called_control(pair):
    shutil.rmtree(pair / "control" / "server")
    assert read_with_controls(pair).control_problems == []


def test_what_a_control_may_differ_in():
    asked = {"gain": True, "fingerprint": True}  # of a run alone
    ours = {
        "study": {"name": "a", "sites": {}, "min_clients": 3, "rounds": 2, **asked},
        "model": {"seed": 0, "digest": "x"},
    }
    theirs = {"study": {"name": "b", "sites": {"c": 1}, "rounds": 2, "resume": "x"}, "rule": None}
    assert differences(ours, theirs) == []
    assert differences(ours, {"controller": {"job": "b", "rounds": 2}, "aggregator": {}}) == [], "of FedMed 0.1"
    others = {"study": {"rounds": 3}, "model": {"seed": 1}}
    assert differences(ours, others) == ["'rounds' is 2 and 3", "'seed' is 0 and 1"]


def test_many_sites_without_labels_are_counted(pair):
    run = read_run(pair)
    for site in run.sites:
        site.role = "unsupervised"
    gains = [
        Gain(f"s{n}", "no labels", 0.6, 0.5, low, low + 0.02, 9, 9) for n, low in enumerate([0.1, 0.1, -0.1, -0.01])
    ]
    run.steps = [Step("left_out", gains)]
    assert headline(run) == (
        "Of 4 sites that train without labels, with all their scans and without them: better off: 2, worse off: 1 and "
        "no difference detected: 1."
    )
