"""Run a bundle's inference before and after an export."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.infer import run_inference
from fedmed.bundles.merged_configs import speaks_of
from fedmed.errors import BundleError, ExportError
from fedmed.export.folder import CONFIGS

# `python -m monai.bundle` in a process that cannot import FedMed: a bundle must not need it to infer.
ALONE = "import runpy, sys; sys.modules['fedmed'] = None; runpy.run_module('monai.bundle', run_name='__main__')"


def infer_before(
    bundle: Bundle, tensors: Mapping[str, Tensor], images: Path, out: Path, own: Mapping[str, Any] | None = None
) -> Path:
    """Infer a folder of images with the installed bundle, its overlays and overrides, and the run's own tensors.

    Args:
        bundle, tensors: see above.
        images: folder.
        out: folder of the results, which must not exist.
        own: facts of a site, such as its words, that are baked into the export.

    Returns:
        ``out``, which is made, with the results in it.

    Raises:
        ExportError: the bundle cannot infer them.
    """
    out.mkdir()
    torch.save(dict(tensors), out / "model.pt")
    main = bundle.config_file("inference")
    files = [main, *(path for path in bundle.files[1:] if speaks_of(main, path))]
    facts = {"bundle_root": str(bundle.root), "dataset_dir": str(images), "output_dir": str(out)}
    try:
        run_inference(
            bundle.root, files, {**bundle.overrides, **(own or {}), **facts, "model_path": str(out / "model.pt")}
        )
    except BundleError as error:
        raise ExportError(f"the run's model cannot infer the image before the export: {error}") from error
    (out / "model.pt").unlink()
    return out


def infer_after(folder: Path, config: Path, images: Path, out: Path) -> Path:
    """Infer the same with the exported bundle, in a process of its own; arguments and errors as above."""
    place = ["--bundle_root", ".", "--dataset_dir", str(images), "--output_dir", str(out)]
    command = [sys.executable, "-c", ALONE, "run", "--config_file", f"{CONFIGS}/{config.name}", *place]
    # The same number of threads adds in the same order; and nothing may be left in the bundle.
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise ExportError("python -m monai.bundle run of the exported bundle failed: " + " / ".join(last))
    return out
