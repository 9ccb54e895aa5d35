"""Prove that an exported bundle is one, and that it does what the run's model did."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from monai.bundle import ConfigWorkflow, verify_metadata, verify_net_in_out
from torch import Tensor

from fedmed.bundles.load import Bundle
from fedmed.bundles.pretraining import pretrained
from fedmed.errors import ExportError
from fedmed.export.configs import speaks_of
from fedmed.export.features import same_features
from fedmed.export.folder import CONFIGS, METADATA
from fedmed.export.formats import quiet
from fedmed.export.phantoms import kind_of, phantom
from fedmed.export.results import compare

SCHEMA = Path(__file__).with_name("metadata_schema.json")
# `python -m monai.bundle` in a process that cannot import FedMed: a bundle must not need it to infer.
ALONE = "import runpy, sys; sys.modules['fedmed'] = None; runpy.run_module('monai.bundle', run_name='__main__')"


def verify(folder: Path, config: Path, bundle: Bundle, tensors: Mapping[str, Tensor], image: Path | None) -> list[str]:
    """Check an exported bundle; return what was checked, in words.

    Args:
        folder: the exported bundle.
        config: its ``inference`` config.
        bundle: the installed bundle with the run's overlays and overrides.
        tensors: the run's model.
        image: the case that both infer; None = a generated one that fits the bundle.

    Raises:
        ExportError: a check fails; says which, and what came out.
    """
    meta = str(folder / CONFIGS / METADATA)
    with quiet():
        _passes("verify_metadata", lambda: verify_metadata(meta_file=meta, filepath=str(SCHEMA)))
        fits = {"net_id": "network_def", "meta_file": meta, "device": "cpu", "bundle_root": str(folder)}
        for path in (config, folder / CONFIGS / bundle.config_file("train").name):
            _passes("verify_net_in_out", lambda path=path: verify_net_in_out(config_file=str(path), **fits))
    checks = ["MONAI's `verify_metadata`, `verify_net_in_out` and `check_properties`: passed."]
    with tempfile.TemporaryDirectory(prefix="fedmed-verify-") as place, _own_paths():
        case, what = _case(Path(place) / "images", image, config)
        images = Path(place) / "images"
        with quiet():
            _passes("check_properties", lambda: _check_properties(config, meta, folder, images))
        if made := pretrained(bundle):
            return [*checks, same_features(folder, bundle, made, tensors, case, what)]
        with quiet():
            before = _infer_before(bundle, tensors, images, Path(place) / "before")
        after = _infer_after(folder, config, images, Path(place) / "after")
        found = compare(before, after)
    alone = "the second by `python -m monai.bundle run` in a process without FedMed"
    return [*checks, f"Inference on {what}, before and after the export: {found}; {alone}."]


def check_image(image: Path | None) -> None:
    """Refuse an image that is not there, before hours of work."""
    if image is not None and not Path(image).expanduser().is_file():
        raise ExportError(f"--verify: the image {image} does not exist")


def _passes(name: str, check: Any) -> None:
    try:
        check()
    except Exception as error:  # noqa: BLE001 - MONAI's checks raise many kinds, and the networks any
        raise ExportError(f"MONAI's {name} refuses the exported bundle: {type(error).__name__}: {error}") from error


def _check_properties(config: Path, meta: str, folder: Path, images: Path) -> None:
    facts = {"bundle_root": str(folder), "dataset_dir": str(images)}
    workflow = ConfigWorkflow(str(config), meta_file=meta, logging_file=False, workflow_type="infer", **facts)
    workflow.initialize()
    if missing := workflow.check_properties():  # MONAI raises for most of what is missing
        raise KeyError(", ".join(missing))


@contextlib.contextmanager
def _own_paths() -> Iterator[None]:
    """A bundle adds itself to the places that Python imports from; this process is not only its."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before


def _case(folder: Path, image: Path | None, config: Path) -> tuple[Path, str]:
    """The image alone in a folder, as inference wants it, and what it is."""
    folder.mkdir()
    if image is None:
        meta = json.loads((config.parent / METADATA).read_text(encoding="utf-8"))
        kind = kind_of(meta["network_data_format"]["inputs"]["image"], config)
        return phantom(folder, kind, config), f"a generated {kind}"
    image = Path(image).expanduser().absolute()
    (folder / image.name).symlink_to(image)
    return folder / image.name, "one real image"


def _infer_before(bundle: Bundle, tensors: Mapping[str, Tensor], images: Path, out: Path) -> Path:
    """The installed bundle with overlays, overrides and the run's own tensors."""
    out.mkdir()
    torch.save(dict(tensors), out / "model.pt")
    main = bundle.config_file("inference")
    files = [str(main), *(str(path) for path in bundle.files[1:] if speaks_of(main, path))]
    facts = {"bundle_root": str(bundle.root), "dataset_dir": str(images), "output_dir": str(out)}
    values = {**bundle.overrides, **facts, "model_path": str(out / "model.pt")}
    meta = str(bundle.root / CONFIGS / METADATA)
    try:
        workflow = ConfigWorkflow(files, meta_file=meta, logging_file=False, workflow_type="infer", **values)
        workflow.initialize()
        workflow.run()
        workflow.finalize()
    except Exception as error:  # noqa: BLE001 - a bundle is others' code, and MONAI wraps whatever it raises
        raise ExportError(f"the run's model cannot infer the image before the export: {_cause(error)}") from error
    (out / "model.pt").unlink()
    return out


def _infer_after(folder: Path, config: Path, images: Path, out: Path) -> Path:
    place = ["--bundle_root", ".", "--dataset_dir", str(images), "--output_dir", str(out)]
    command = [sys.executable, "-c", ALONE, "run", "--config_file", f"{CONFIGS}/{config.name}", *place]
    # The same number of threads adds in the same order; and nothing may be left in the bundle.
    environment = {**os.environ, "OMP_NUM_THREADS": str(torch.get_num_threads()), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-3:]
        raise ExportError("python -m monai.bundle run of the exported bundle failed: " + " / ".join(last))
    return out


def _cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {error}"
