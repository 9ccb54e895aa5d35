"""The demo teaches what it should: the whole job on the demo federation."""

import json
from pathlib import Path

import pytest

from fedmed.federation.loop import run_job

JOBS = Path(__file__).resolve().parents[2] / "jobs"


@pytest.mark.slow
def test_demo_job_learns_to_segment(tmp_path):
    run_job(JOBS / "covid_fssl", tmp_path)
    fedmed = tmp_path / "server" / "simulate_job" / "fedmed"
    rounds = [json.loads(line) for line in (fedmed / "rounds.jsonl").read_text().splitlines()]
    result = json.loads((fedmed / "result.json").read_text())
    assert result["best_score"] >= rounds[0]["score"] + 0.2
    assert set(result["test"]) == {"ct_north", "ct_south", "ct_east", "ct_west"}
    assert [r["accepted"] for r in rounds[:5]] == [["ct_north", "ct_south"]] * 5
    assert rounds[5]["accepted"] == ["ct_east", "ct_north", "ct_south"]
