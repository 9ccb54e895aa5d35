"""Files that a run leaves in its workspace, and the comparison of what two runs leave."""

import json
from pathlib import Path

import pytest
import torch

from fedmed.durable_files import load_tensors

RUN = "simulate_job"


class Killed(BaseException):
    """The process ends: nobody may catch this."""


def read_lines(path: Path) -> list:
    """Values of JSON lines, in none of which a number is NaN or infinite."""
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]


def records(workspace: Path, site: str = "server") -> Path:
    """Folder of what the server, or a site, writes down."""
    return workspace / site / RUN / "fedmed"


def rounds_of(workspace: Path) -> list:
    """Records of the rounds."""
    return read_lines(records(workspace) / "rounds.jsonl")


def result_of(workspace: Path) -> dict:
    """Result of the run."""
    return json.loads((records(workspace) / "result.json").read_text())


def model_of(workspace: Path, name: str = "FL_global_model.pt") -> dict:
    """Tensors of a global model."""
    return load_tensors(workspace / "server" / RUN / "app_server" / name)["model"]


def kept_of(workspace: Path, site: str, round: int) -> dict:
    """State that a site has kept of a round, but for the settings that it was made with."""
    path = records(workspace, site) / f"state/round_{round}.pt"
    return {key: value for key, value in load_tensors(path).items() if key != "made_with"}


def timeless(value: object) -> object:
    """Records without the times in them."""
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if "seconds" not in key and key != "started"}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def spoil(path: Path, damage: str = "flipped") -> None:
    """Damage a file: flip 64 bytes in its middle, which PyTorch would read without a word, or otherwise."""
    content = path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes(255 - byte for byte in content[middle : middle + 64]) + content[middle + 64 :]
    path.write_bytes({"flipped": flipped, "cut": content[:middle], "rubbish": b"damaged"}[damage])


def same(one: object, other: object) -> bool:
    """Tell whether two values are the same bit by bit, whatever the nesting, and in the same order."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other
