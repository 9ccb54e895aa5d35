"""A model that is tested under several names is tested once, and each name has its scores and files."""

from collections import Counter
from pathlib import Path

from torch import nn

from fedmed.data.video.video_features import encoder_digest
from fedmed.federation import client
from fedmed.federation.loop import run_job
from fedmed.federation.own_best import EarlierScores
from tests.federation.run_folder import result_of


def network(weight):
    made = nn.Linear(1, 1, bias=False)
    nn.init.constant_(made.weight, weight)
    return encoder_digest(made)


def written(folder, text):
    folder.mkdir(exist_ok=True)
    (folder / "cases.csv").write_text(text)
    return folder


def test_another_model_is_tested_and_the_same_one_is_not(tmp_path):
    scores, first = EarlierScores(), written(tmp_path / "evaluation", "0.5")
    assert scores.again(network(1.0), first) is None
    scores.keep(network(1.0), {"dice_mean": 0.5}, first)
    local = written(tmp_path / "evaluation_own", "of another run")
    assert scores.again(network(2.0), local) is None
    assert (local / "cases.csv").read_text() == "of another run"
    outcome = scores.again(network(1.0), local)
    assert outcome == {"dice_mean": 0.5} and (local / "cases.csv").read_text() == "0.5"
    outcome["model_round"] = 3
    assert scores.again(network(1.0), first) == {"dice_mean": 0.5}, "what a caller adds is its own"


def test_files_that_were_overwritten_or_removed_are_not_taken(tmp_path):
    scores, folder = EarlierScores(), written(tmp_path / "evaluation", "0.5")
    scores.keep(network(1.0), {"dice_mean": 0.5}, folder)
    scores.keep(network(2.0), {"dice_mean": 0.7}, folder)
    assert scores.again(network(1.0), folder) is None and scores.again(network(2.0), folder) == {"dice_mean": 0.7}
    scores.keep(network(3.0), {"dice_mean": 0.9}, tmp_path / "removed")
    assert scores.again(network(3.0), tmp_path / "evaluation_own") is None


def test_a_federation_tests_each_model_once_at_a_site(tiny_job, tmp_path, monkeypatch):
    """The last round's model is the selected one here, or each site's own best is."""
    tested, original = Counter(), client.test_scores

    def spy(parser, *others):
        digest = float(sum(t.double().sum() for t in parser.get_parsed_content("network").state_dict().values()))
        tested[Path(str(parser["evaluation_dir"])).parents[2].name, digest] += 1
        return original(parser, *others)

    monkeypatch.setattr(client, "test_scores", spy)
    run_job(tiny_job(rounds=1, evaluate_last=True), tmp_path / "ws")
    assert tested and set(tested.values()) == {1}, "no model twice at one site"
    result = result_of(tmp_path / "ws")
    reported = [len(result[name]) for name in ("test", "test_last", "test_own")]
    assert sum(reported) > sum(tested.values()), "some came under two names"
    for site in result["test_own"]:
        folder = tmp_path / "ws" / site / "simulate_job/fedmed"
        assert all((folder / f"evaluation{end}/cases.csv").is_file() for end in ("", "_last", "_own"))
