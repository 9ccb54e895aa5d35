"""``fedmed research``: tables of papers, which only a checkout of FedMed has."""

import os
import sys

import typer

from fedmed.errors import FedMedError
from fedmed.files import CHECKOUT


def research(context: typer.Context) -> None:
    """Run the tables of papers, with figures, paired tests and a check of their claims: needs FedMed's repository."""
    if not (CHECKOUT / "research" / "__main__.py").is_file():
        raise FedMedError("the tables of papers are in FedMed's repository alone; clone it, then scripts/setup.sh")
    run_module("research", context.args, str(CHECKOUT))


def run_module(module: str, arguments: list[str], *folders: str) -> None:
    """Become the program ``python -m module``; ``folders``: where it lies, beside what Python knows."""
    known = os.environ.get("PYTHONPATH")
    paths = os.pathsep.join([*folders, *([known] if known else [])])
    environment = {**os.environ, **({"PYTHONPATH": paths} if paths else {})}
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, "-m", module, *arguments], environment)
