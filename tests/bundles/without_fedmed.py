"""A run of a bundle by MONAI alone, in a copy of this process: it has imported torch and MONAI already."""

import multiprocessing
import os
import sys
from pathlib import Path

from fedmed.export.exporter import WITHOUT_FEDMED

CHECKOUT = Path(__file__).resolve().parents[2]


def run_without_fedmed(folder: Path, *words: object) -> None:
    """Run ``python -m monai.bundle run WORDS`` where neither FedMed nor the package of a bundle is imported yet.

    Args:
        folder: what the run prints is left there.
        words: of the command line.
    """
    said = folder / "said.txt"
    process = multiprocessing.get_context("fork").Process(target=_run, args=(said, list(map(str, words))))
    process.start()
    process.join(300)
    if process.is_alive():
        process.kill()
    assert process.exitcode == 0, said.read_text()[-2000:]


def _run(said: Path, words: list[str]) -> None:
    with said.open("w") as file:
        for stream in (1, 2):
            os.dup2(file.fileno(), stream)
    sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
    installed = Path(sys.prefix)
    for name, module in list(sys.modules.items()):
        path = Path(getattr(module, "__file__", None) or installed)
        if path.is_relative_to(CHECKOUT) and not path.is_relative_to(installed) and not name.startswith("fedmed"):
            del sys.modules[name]
    sys.path[:] = [place for place in sys.path if not (place and Path(place).is_relative_to(CHECKOUT / "bundles"))]
    sys.argv = ["monai.bundle", "run", *words]
    exec(WITHOUT_FEDMED, {"__name__": "started"})
