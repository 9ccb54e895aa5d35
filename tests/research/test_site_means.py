import pandas as pd
import pytest

from research.runner.score_table import SENT, joined, score_frame
from research.runner.site_scores import in_columns, pooled_f1
from research.runner.yaml_models import build
from research.tables.fedcy import falls_elsewhere


def sent(site, counts, seed=0):
    rows = [{"metric": f"frames_{pair}", "value": float(n)} for pair, n in counts.items()]
    return score_frame(rows, arm="x", seed=seed, site=site, list=SENT, model="last", unit="mean")


def test_f1_of_all_frames_is_made_of_counts():
    whole = sent("a", {"u>u": 8, "u>v": 2, "v>u": 1, "v>v": 9})
    kept = sent("b", {"u>u": 8, "u>v": 2, "v>v": 9})  # a site that keeps a count
    f1 = pooled_f1(joined([whole, kept]), "last")
    assert f1.to_dict() == {("x", "a", 0): pytest.approx((16 / 19 + 18 / 21) / 2)}


def test_turns_of_a_site_are_added_up():
    turns = ({"u>u": 3, "u>v": 0, "v>u": 1, "v>v": 0}, {"u>u": 5, "u>v": 2, "v>u": 0, "v>v": 9})
    assert pooled_f1(joined([sent("a", turn) for turn in turns]), "last")["x", "a", 0] == pytest.approx(
        (16 / 19 + 18 / 21) / 2
    )


def test_each_site_counts_the_same_in_a_mean_and_all_must_be_there():
    rows = [("x", site, seed, value) for site, seed, value in (("a", 0, 0.2), ("b", 0, 0.6), ("a", 1, 0.4))]
    values = pd.DataFrame(rows, columns=["arm", "site", "seed", "value"]).set_index(["arm", "site", "seed"])["value"]
    columns = in_columns(values, ["b"], {"both": ["a", "b"]})
    assert columns["both"].to_dict() == {("x", 0): pytest.approx(0.4)} and list(columns) == ["b", "both"]


def test_a_test_over_the_cases_of_several_sites(runs, evidence, case_claim):
    high, low = [[0.6, 0.7, 0.81, 0.9]] * 3, [[0.5, 0.61, 0.7, 0.82]] * 3
    frames = [runs(arm, dice, site) for site in ("site_1", "site_2") for arm, dice in (("a", high), ("b", low))]
    apart = case_claim("a", "b", "site_1", "site_2").findings(evidence(*frames))
    [together] = case_claim("a", "b", "site_1", "site_2", together=True).findings(evidence(*frames))
    assert len(apart) == 2 and all(one.p == 0.125 for one in apart), "2 / 2**4: four cases cannot show more"
    assert together.p == pytest.approx(2 / 2**8, rel=0.5) and dict(together.cells)["cases"] == "8"
    assert dict(together.cells)["site"] == "site_1, site_2"
    assert dict(together.record)["difference"] == pytest.approx(0.095)
    assert case_claim("a", "b", "site_1", "site_2", together=True).findings(evidence(*frames[:3])) == []


def test_a_model_falls_elsewhere(runs, evidence):
    claim = build(falls_elsewhere, {"id": 1, "text": "t", "arm": "a", "home": ["site_1"], "away": ["site_2"]}, "claim")
    home, away = [[0.8, 0.9, 0.7, 0.85]] * 2, [[0.1, 0.2, 0.15, 0.3]] * 2
    [finding] = claim.findings(evidence(runs("a", home), runs("a", away, "site_2")))
    assert finding.p == pytest.approx(2 / 70), "twice 1 / (8 over 4): all of one above all of the other"
    assert finding.direction == 1 and finding.seeds == pytest.approx((0.625, 0.625))
    [turned] = claim.findings(evidence(runs("a", away), runs("a", home, "site_2")))
    assert turned.p == finding.p and turned.direction == -1
    assert claim.findings(evidence(runs("a", home))) == []
