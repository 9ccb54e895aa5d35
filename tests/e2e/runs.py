"""Runs of NVFlare's simulator for tests, what they leave, and whether two are equal."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from fedmed.durable_files import load_tensors
from tests.conftest import leave_charts_out

PATIENT = "Meier-4711"  # in the name of a file that a site lists and has lost
LAST, BEST = "FL_global_model.pt", "best_FL_global_model.pt"
SERVER = "server/simulate_job"


def try_to_simulate(job: Path, workspace: Path, threads: int | None = None, environment: dict[str, str] | None = None):
    """Run ``nvflare simulator`` to its end and return its process."""
    command = [str(Path(sys.executable).with_name("nvflare")), "simulator", str(job), "-w", str(workspace)]
    command += [] if threads is None else ["-t", str(threads)]
    where = {"cwd": workspace.parent, "env": environment or os.environ}
    return subprocess.run(command, capture_output=True, text=True, timeout=1800, **where)


def simulate(*arguments: Any, **options: Any) -> str:
    """As :func:`try_to_simulate`; the run must end well. Return all that was printed."""
    done = try_to_simulate(*arguments, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def model(workspace: Path, name: str = LAST) -> dict[str, torch.Tensor]:
    return load_tensors(workspace / SERVER / "app_server" / name)["model"]


def rounds(workspace: Path) -> list[dict[str, Any]]:
    """The server's record, a dict a round."""
    return [json.loads(line) for line in (workspace / SERVER / "fedmed/rounds.jsonl").read_text().splitlines()]


def result(workspace: Path) -> dict[str, Any]:
    return json.loads((workspace / SERVER / "fedmed/result.json").read_text())


def same(one: Any, other: Any) -> bool:
    """True where both are equal, tensors bit for bit and of one type, at any depth."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    return len(one) == len(other) and all(map(same, one, other)) if isinstance(one, list | tuple) else one == other


def same_models(one: Path, other: Path) -> bool:
    """True where both workspaces hold the same last and the same selected model, and know the same of them."""
    paths = ([workspace / SERVER / "app_server" / name for name in (LAST, BEST)] for workspace in (one, other))
    return all(same(load_tensors(ours), load_tensors(theirs)) for ours, theirs in zip(*paths, strict=True))


def name_after_a_patient(data: Path, key: str, name: str) -> Path:
    """Rename the first file of a list after a patient: ``name`` is ``image`` or ``video``; return where it is now."""
    datalist = json.loads((data / "datalist.json").read_text())
    entry = datalist[key][0]
    before = data / entry[name]
    entry[name] = f"{PATIENT}/{PATIENT}{''.join(before.suffixes)}"
    (data / PATIENT).mkdir()
    (data / "datalist.json").write_text(json.dumps(datalist))
    return before.rename(data / entry[name])


def lose(data: Path, key: str, name: str) -> None:
    """As :func:`name_after_a_patient`, and remove the file."""
    name_after_a_patient(data, key, name).unlink()


def captured(root: Path) -> bytes:
    """All that any process wrote to a socket, with the environment of ``tap(root)``."""
    return b"\0".join(path.read_bytes() for path in sorted((root / "capture").iterdir()))


def kept_by_the_server(workspace: Path) -> bytes:
    """Content of all files of the server; each kind of file that it writes is there."""
    files = [path for path in (workspace / "server").rglob("*") if path.is_file()]
    kinds = ("log.txt", "rounds.jsonl", "result.json", "run.json", LAST, "events.out.tfevents")
    assert all(any(kind in path.name for path in files) for kind in kinds)
    return b"\0".join(path.read_bytes() for path in files)


def leave_pictures_out(patch):
    """Draw no charts in pages, nor PNGs of them: for tests that look at neither."""
    leave_charts_out(patch)
    patch.setattr("fedmed.reports.plots.png", lambda figure, path: None)
