"""Change the records of a synthetic run, and read what a terminal shows."""

import io
import json

from rich.console import Console

SERVER = "server/simulate_job/fedmed"
AUROC = {"name": "auroc", "label": "AUROC", "test": "auroc", "low": "auroc_low", "high": "auroc_high"}


def change(folder, name, **values):
    """Set keys of ``run.json`` or ``result.json``; return the content."""
    path = folder / SERVER / f"{name}.json"
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps(content))
    return content


def change_test(folder, site, **numbers):
    """Set numbers of a site's final test."""
    test = change(folder, "result")["test"]
    change(folder, "result", test=test | {site: test[site] | numbers})


def change_rounds(folder, change):
    """Give each line of ``rounds.jsonl`` what a function of its place and itself returns."""
    path = folder / SERVER / "rounds.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(line | change(place, line)) + "\n" for place, line in enumerate(lines)))


def shown(*things, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(*things)
    return console.file.getvalue()
