"""Tables, tests and claims of several labels, on synthetic counts."""

import numpy as np
import pandas as pd
import pytest

from fedmed.errors import DataError, JobError
from fedmed.training.label_counts import LabelCounts
from research.runner.always_positive import always_positive
from research.runner.experiment_table import load_table
from research.runner.judgement import claims_markdown, judge
from research.runner.label_bars import label_bars
from research.runner.label_claims import compare_labels
from research.runner.label_scores import LabelScores
from research.runner.label_tables import LabelTable, label_numbers
from research.runner.paired_statistics import mann_whitney_less
from research.runner.score_table import joined, part_of
from research.runner.table_claim import Evidence, Verdict
from research.runner.table_layout import ShownArm, ShownTable

from .label_rows import IMAGES, LABELS, QUALITY, SHOWN, SITES, counts_rows, round_rows, table_rows
from .shipped_tables import EXPERIMENTS, table_of

TABLES = ("tools_a1", "tools_a2", "tools_61", "tools_diagnostics")


@pytest.fixture(scope="module")
def made():
    return table_rows()


def scores_of(arms, frame):
    return LabelScores(frame, arms, SITES)


@pytest.fixture(scope="module")
def scores(made):
    return scores_of(*made)


def written(name, arms, frame):
    table = table_of(name)
    evidence = Evidence(frame, table.scores, SITES, "made up", arms)
    return table, evidence, table.layout.contents(ShownTable(table.title, arms, list(SITES.values()), evidence))


class Scores:
    """Each client has one F1 of each row."""

    def __init__(self, rows):
        self._rows, self.sites, self.seeds = rows, list(SITES), [0]

    def rows(self, variant):
        return list(self._rows)

    def values(self, row, variant, absent):
        return np.array(self._rows[row])[None, :, None]


def test_the_arithmetic_of_the_thesis():
    """Printed of FedAvg with AlexNet: .638 and .01832."""
    scores = Scores({"ALTV": [0.4] * 5, "FedAvg": [0.461, 0.483, 0.755, 0.735, 0.753], "Yogi": [0.9] * 5})
    table = LabelTable(columns="sites", federated=["FedAvg"]).table(scores, "", ["Yogi"])
    assert table.loc["FedAvg", "Mean"] == pytest.approx(0.6374)
    assert table.loc["FedAvg", "Var"] == pytest.approx(0.01834, abs=5e-6)
    assert list(table.index) == ["ALTV", "FedAvg", "Mean", "Var", "MeanFL", "VarFL", "Yogi"]
    assert table.loc["Mean", "HEI1"] == pytest.approx(0.4305) and table.loc["MeanFL", "HEI1"] == pytest.approx(0.461)
    assert table.loc["Var", "HEI1"] == pytest.approx(((0.461 - 0.4) / 2) ** 2), "of the population"


def test_both_views_are_of_the_same_models(scores):
    """EGOV is the diagonal of the score matrix, ALTV its last column, whose counts are added up over sites."""
    for seed in range(3):
        for k, (name, site) in enumerate(SITES.items()):
            arm = part_of("LOT, small network", site)
            assert np.array_equal(scores.values("EGOV", "small network")[seed, k], scores.counts(arm, seed, name).f1())
            total = sum((scores.counts(arm, seed, other) for other in SITES), LabelCounts.none(len(LABELS)))
            assert np.array_equal(scores.values("ALTV", "small network")[seed, k], total.f1())
            assert (total.tp + total.fn).tolist() == (SHOWN * 15).tolist()


def test_means_over_clients_are_weighted_by_images_where_models_differ_by_client(scores):
    shares = np.array(list(IMAGES.values())) / 1000
    assert np.allclose(scores.shares, shares)
    expected = np.einsum("skj,k->sj", scores.values("EGOV", "small network"), shares)
    assert np.allclose(scores.overall("EGOV", "small network", False), expected)
    one, mine = (scores.overall("FedAvg", "small network", personal) for personal in (False, True))
    assert np.array_equal(one[0], scores.total("FedAvg, small network", 0).f1()) and not np.allclose(one, mine)


def test_each_video_is_left_out_of_the_frames_of_its_site(scores):
    videos = len(scores.strata)
    for row in ("ALTV", "EGOV", "FedAvg"):
        means, values = scores.left_out(row, "large network"), scores.values(row, "large network")
        assert means.shape == (3, 1 + videos) and np.allclose(means[:, 0], values.mean((1, 2)))
        assert (means[:, 1:] != means[:, :1]).any(axis=0).all()


def test_a_score_without_a_video_is_that_of_the_others(made):
    """Of a table from which one video of CHO1 is taken, by the slow way."""
    arms, frame = made
    whole, site = scores_of(arms, frame), SITES["CHO1"]
    at = (frame["list"] == "test") & (frame["site"] == site)
    first = sorted(frame[at]["unit"].astype(str).unique())[0]
    fewer = scores_of(arms, frame[~(at & (frame["unit"].astype(str) == first)).to_numpy()])
    place = 1 + int(np.flatnonzero(whole.strata == list(SITES).index("CHO1"))[0])
    for row in ("ALTV", "EGOV", "FedAvg"):
        without = whole.left_out(row, "small network")[:, place]
        assert np.allclose(without, fewer.left_out(row, "small network")[:, 0])


@pytest.mark.usefixtures("undrawn")
def test_a_site_that_keeps_its_counts_is_named_and_there_is_no_score_of_all_frames():
    arms, frame = table_rows(seeds=(0,), withheld=["CHO2"])
    for name, gone in (("tools_a1", "| FedAvg | 0."), ("tools_a2", "| FedAvg | – | – | – | – | – |")):
        text = written(name, arms, frame)[2]["table.md"].decode()
        assert gone in text and "FedAvg has no score of all frames: no counts came from CHO2." in text
    assert compare_labels(scores_of(arms, frame), "FedAvg", "ALTV") == []
    table, evidence, _ = written("tools_61", arms, frame)
    assert judge(table.claims, evidence)[0].verdict is Verdict.NOT_RUN


@pytest.mark.parametrize("name", TABLES)
def test_every_table_is_written_and_its_claims_are_judged(name, made):
    table, evidence, contents = written(name, *made)
    assert set(contents) <= table.layout.names() and contents
    assert all(len(content) > 500 for content in contents.values())
    judged = {str(one.claim.id): one for one in judge(table.claims, evidence)}
    assert not any(one.verdict is Verdict.NOT_RUN for one in judged.values())
    holds = {"tools_61": ["1", "4"], "tools_a1": ["9"], "tools_diagnostics": ["8, loss", "8, distance", "8, cosine"]}
    assert all(judged[claim].verdict is Verdict.HOLDS for claim in holds.get(name, []))
    if name == "tools_61":
        assert len(judged["1"].findings) == 8, "two tests of each pair"
        assert all(one.p_holm >= one.p for claim in judged.values() for one in claim.findings if one.p is not None)


@pytest.mark.usefixtures("undrawn")
def test_a_table_of_some_arms_is_written_and_claims_of_the_others_are_not_run(made):
    arms, frame = made
    some = [arm for arm in arms if arm.row in ("FedAvg", "CENT") and arm.variant == "small network"]
    frame = frame[frame["arm"].isin([arm.name for arm in some])]
    for name in TABLES:
        table, evidence, contents = written(name, some, frame)
        assert contents and not any(b"ALTV" in content for file, content in contents.items() if file == "table.md")
        judged = {str(one.claim.id): one.verdict for one in judge(table.claims, evidence)}
        assert all(judged[claim] is Verdict.NOT_RUN for claim in ("1", "4", "5", "6", "7") if claim in judged)


def test_values_of_both_networks_are_a_group_and_seeds_multiply_nothing(scores):
    u, drawn = compare_labels(scores, "FedAvg", "EGOV")
    assert dict(u.cells)["values"] == str(2 * 5 * len(LABELS)) and len(u.seeds) == 3
    low, high = (np.stack([scores.values(row, name).mean(0) for name in scores.variants]) for row in ("EGOV", "FedAvg"))
    assert u.p == mann_whitney_less(low.ravel(), high.ravel())[0]
    assert u.direction == drawn.direction == pytest.approx((high - low).mean())
    assert drawn.p < 0.01 and dict(drawn.record)["low"] > 0
    same = compare_labels(scores, "FedAvg", "FedAvg")
    assert min(one.p for one in same) > 0.4


def test_one_video_a_site_cannot_tell_and_the_page_says_so(made):
    arms, frame = made
    names = frame["unit"].astype(str)
    first = names.groupby([frame["list"].astype(str), frame["site"].astype(str)]).transform("min")
    frame = frame[((frame["list"] != "test") | (names == first)).to_numpy()]
    u, video = compare_labels(scores_of(arms, frame), "FedAvg", "EGOV")
    assert video.p is None and video.outcome is Verdict.OPEN and u.p is not None
    assert video.too_few == "5 videos cannot tell" and dict(video.cells)["90 % interval"] == "–"
    table, evidence, contents = written("tools_61", arms, frame)
    assert "| FedAvg | " + " | ".join(["5 videos cannot tell"] * 3) + " |" in contents["table.md"].decode()
    judged = judge(table.claims, evidence)
    verdicts = {str(one.claim.id): one.verdict for one in judged}
    assert verdicts["1"] is Verdict.OPEN and verdicts["3"] is not Verdict.HOLDS
    assert "| n.s.: 5 videos cannot tell |" in claims_markdown(table.title, judged, table.scores)


def test_one_sided_p_by_hand():
    """Exact: of 3 + 3 values in one order, 1 of 20; with ties the normal approximation."""
    assert mann_whitney_less([1, 2, 3], [4, 5, 6]) == (pytest.approx(0.05), 1.0)
    assert mann_whitney_less([4, 5, 6], [1, 2, 3]) == (pytest.approx(1), -1.0)
    assert mann_whitney_less([1, 1], [1, 1])[1] == 0
    x, y = [0.2, 0.4, 0.5, 0.6], [0.55, 0.7, 0.8, 0.9]
    assert mann_whitney_less(x, y) == (pytest.approx(2 / 70), 1 - 2 * 1 / 16)
    assert mann_whitney_less(x, [0.5, *y[1:]]) == (pytest.approx(0.0407146, abs=1e-6), 1 - 2 * 1.5 / 16)
    with pytest.raises(DataError, match="0 and 1 values"):
        mann_whitney_less([], [1])


def test_a_label_that_is_nowhere_counts_zero_or_is_left_out():
    zero = {name: 1.0 for name in SITES}
    frame = joined([counts_rows("FedAvg", zero), round_rows("FedAvg")])
    frame.loc[frame["metric"].isin(["tp_bag", "fn_bag", "fp_bag"]), "value"] = 0
    scores = scores_of([ShownArm("FedAvg")], frame)
    for absent, mean in (("zero", 2 / 3), ("skip", 1.0)):
        assert np.nanmean(scores.values("FedAvg", "", absent)) == pytest.approx(mean)
        layout = LabelTable(columns="sites", federated=["FedAvg"], absent=absent)
        assert layout.table(scores, "", []).loc["FedAvg", "Mean"] == pytest.approx(mean)


def test_numbers_of_each_label_site_and_model(made, scores):
    numbers = label_numbers(scores, made[1]).set_index(["arm", "site", "label"])
    assert len(numbers) == 2 * (5 + len(QUALITY)) * 6 * len(LABELS)
    line = numbers.loc[("FedAvg, small network", "all", "clipper")]
    totals = [scores.total("FedAvg, small network", seed) for seed in range(3)]
    assert line["precision_zero"] == pytest.approx(np.mean([one.precision()[1] for one in totals]))
    assert line["average_precision"] == pytest.approx(np.mean([0.7, 0.7, 0.8, 0.8, 0.8]))
    assert isinstance(numbers, pd.DataFrame) and numbers.notna().all().all()


def test_rows_that_no_arm_makes_are_refused_before_anything_runs(tmp_path):
    text = (EXPERIMENTS / "tools_a1.yaml").read_text()
    for old, new, words in (
        ("federated: [FedAvg", "federated: [FedAvgg", "'federated' names 'FedAvgg'; it must name some of: LOT, FedAvg"),
        ("rows: [FedAvg, CENT]", "rows: [FedAvg, POOL]", "claim 9: 'POOL' is not a row"),
    ):
        assert old in text
        (tmp_path / "t.yaml").write_text(text.replace(old, new, 1))
        with pytest.raises(JobError, match=words):
            load_table(tmp_path / "t.yaml")


def test_a_site_that_is_left_out_is_scored_with_the_models_of_the_others():
    arm = ShownArm("FedAvg")
    parts = {name: part_of("FedAvg", f"without {site}") for name, site in SITES.items()}
    counts = [counts_rows(part, dict.fromkeys(SITES, 0.9) | {name: 0.4}) for name, part in parts.items()]
    parts = list(parts.values())
    frame = joined([*counts, round_rows(parts[0])])
    scores = scores_of([arm], frame)
    assert scores.models("FedAvg", "") == parts and scores.values("FedAvg", "").mean() < 0.55
    assert scores.values("FedAvg", "").shape == (1, 5, len(LABELS))


def test_bars_are_each_label_at_each_site(scores):
    figure = label_bars("Tools", scores, ["ALTV", "EGOV", "FedAvg"])
    assert [axes.get_title() for axes in figure.axes] == list(SITES)
    for place, axes in enumerate(figure.axes):
        heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
        for row, of_row in zip(("ALTV", "EGOV", "FedAvg"), heights, strict=True):
            expected = np.mean([scores.values(row, name) for name in scores.variants], axis=(0, 1))[place]
            assert of_row == pytest.approx(expected.tolist())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ALTV", "EGOV", "FedAvg"]


class Sent:
    """One model, two sites of 100 and 50 frames; (frames found, called in vain, missed) of two labels."""

    sites, labels, seeds = ["a", "b"], ["hook", "bag"], [0]

    def __init__(self, frames=(100, 50)):
        self.of_site = {
            "a": LabelCounts(*np.array([[40, 0], [10, 5], [20, 10]])),
            "b": LabelCounts(*np.array([[5, 0], [0, 0], [5, 0]])),
        }
        numbers = {"a": frames[0], "b": frames[1]}
        self.numbers = {("model", 0, f"site_{k}"): {} if n is None else {"n_frames": n} for k, n in numbers.items()}

    def place(self, site):
        return f"site_{site}"

    def counts(self, arm, seed, site):
        return self.of_site[site]


def test_calling_every_label_in_every_frame_by_site_and_by_label():
    # Site a: 2 · 60 / 160 and 2 · 10 / 110; site b: 2 · 10 / 60, and a label that is never there, called: 0.
    assert always_positive(Sent(), "sites").endswith(": a 0.466, b 0.167; mean 0.316.")
    # Together: 2 · 70 / 220 and 2 · 10 / 160.
    assert always_positive(Sent(), "labels").endswith(": hook 0.636, bag 0.125; mean 0.381.")


@pytest.mark.parametrize("columns", ["sites", "labels"])
def test_nothing_is_said_where_a_site_does_not_tell_its_frames(columns):
    assert always_positive(Sent(frames=(100, None)), columns) == ""
