"""What the server warns of reaches the person who watches a run, and the one who reads its report."""

import io
import json

from rich.console import Console

from fedmed.reports.live import Follower, render
from fedmed.reports.page import page
from fedmed.reports.run import read_run

LINE = {"round": 1, "warnings": [{"site": "ct_east", "message": "80 % of voxels, lower unsupervised_learning_rate"}]}


def test_a_warning_is_a_plain_line_and_stays_in_the_display(tmp_path):
    follower = Follower(tmp_path, "job", ["ct_east"])
    path = tmp_path / "server/simulate_job/fedmed/rounds.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(LINE) + "\n" + json.dumps({"round": 2}) + "\n")
    told = follower.poll()
    assert told[0].splitlines()[1] == "WARNING ct_east: 80 % of voxels, lower unsupervised_learning_rate"
    console = Console(file=io.StringIO(), width=140)
    console.print(render(follower.state, 0.0))
    assert "warning, round 2: ct_east: 80 % of voxels" in console.file.getvalue()


def test_a_warning_stands_at_the_top_of_the_page(fake_run):
    folder = fake_run(rounds=2)
    path = folder / "server/simulate_job/fedmed/rounds.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    lines[1]["warnings"] = LINE["warnings"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    html = page(read_run(folder))
    assert html.index("Warning: ct_east, round 2.") < html.index("Result at each site")
    assert "lower unsupervised_learning_rate" in html
