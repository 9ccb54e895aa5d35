"""Costs of an arm, worked out by hand, from what its jobs recorded."""

import json

import pytest

from fedmed.recovery.interrupted_workspace import records
from research.runner.given_scores import given_scores
from research.runner.job_scores import read_rounds
from research.runner.score_table import SPEED, joined, part_of, score_frame, write_scores
from research.runner.table_claim import Evidence
from research.runner.table_layout import ShownArm, ShownTable
from research.tables.fedst import round_costs

MEGABYTE = 1_000_000


@pytest.fixture
def job(tmp_path):
    """Return a function: sites -> the rows of a job that sent 3 MB up and 2 MB down for each of them in each round."""
    made = []

    def rows(sites, seed=0, seconds=4.0, refused=0):
        folder = tmp_path / f"job{len(made)}"
        made.append(folder)
        records(folder).mkdir(parents=True)
        lines = []
        for number in range(3):
            done = {"sites": {site: {"n_samples": 5} for site in sites}, "seconds": seconds + number}
            weights = {} if number < refused else {site: 1 / len(sites) for site in sites}
            sent = {"bytes_up": 3 * MEGABYTE * len(sites), "bytes_down": 2 * MEGABYTE * len(sites)}
            lines.append({"round": number, **done, **sent, "coefficients": weights})
        (records(folder) / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return read_rounds(folder, seed)

    return rows


def costs(*frames, arm="Local"):
    """Head of a column -> number, of an arm's row."""
    frame = joined([frame.assign(arm=arm) for frame in frames])
    shown = ShownTable("made up", [ShownArm(arm)], [], Evidence(frame, {}, {}))
    contents = round_costs().contents(shown)
    numbers = next(line for line in contents["table.md"].decode().splitlines() if line.startswith(f"| {arm} |"))
    return [part.strip() for part in numbers.strip("|").split("|")][1:]


def test_megabytes_are_of_one_site_whatever_jobs_an_arm_has(job):
    assert costs(job("abcd")) == ["3.00", "2.00", "5.00", "–", "–"]
    assert costs(job("a")) == costs(job("a"), job("b")) == costs(*map(job, "abcd")) == costs(job("abcd"))
    two = [job(site, seed) for seed in (0, 1, 2) for site in ("a", "b")]
    assert costs(*two) == costs(job("a"))
    assert costs(*(job("abc", seed) for seed in (0, 1))) == costs(job("a"))
    assert costs(job("ab", refused=2)) == costs(job("ab")), "a round that gave no model has weights of nobody"


def test_seconds_are_of_one_job_and_frames_of_its_model(job):
    rate = score_frame(
        [{"unit": "model", "metric": "frames_per_second", "value": value} for value in (20, 30)],
        arm="", seed=0, site="", list=SPEED, model="last",
    )  # fmt: skip
    assert costs(job("a", seconds=1.0), job("b", seconds=3.0), rate)[2:] == ["3.00", "–", "25.00"]


def test_costs_are_the_same_from_a_written_table_of_scores(job, tmp_path):
    alone = [job("a"), job("b")]
    parts = [frame.assign(arm=part_of("Local", node)) for frame, node in zip(alone, "ab", strict=True)]
    write_scores(tmp_path / "scores.csv", joined([frame.assign(arm="Local") for frame in alone] + parts))
    again = given_scores([tmp_path / "scores.csv"], ["Local"]).frame
    assert len(again) == 2 * sum(map(len, alone))
    assert costs(again[again["arm"] == "Local"]) == costs(*alone) == costs(again[again["arm"] == "Local: a"])
