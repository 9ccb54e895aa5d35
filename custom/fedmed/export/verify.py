"""Prove that an exported bundle is one, and that it does what the run's model did."""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigParser, ConfigWorkflow, verify_metadata, verify_net_in_out
from torch import Tensor

from fedmed.bundles.load import Bundle
from fedmed.errors import ExportError
from fedmed.export.folder import CONFIGS, METADATA
from fedmed.export.formats import quiet

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
        image: the case that both infer; None = a generated chest CT.

    Raises:
        ExportError: a check fails; says which, and what came out.
    """
    meta = str(folder / CONFIGS / METADATA)
    with quiet():
        _passes("verify_metadata", lambda: verify_metadata(meta_file=meta, filepath=str(SCHEMA)))
        fits = {"net_id": "network_def", "meta_file": meta, "device": "cpu", "bundle_root": str(folder)}
        for path in (config, folder / CONFIGS / bundle.config_file("train").name):
            _passes("verify_net_in_out", lambda path=path: verify_net_in_out(config_file=str(path), **fits))
    with tempfile.TemporaryDirectory(prefix="fedmed-verify-") as place, _own_paths():
        case = _case(Path(place) / "images", image, config)
        with quiet():
            _passes("check_properties", lambda: _check_properties(config, meta, folder, case.parent))
            before = _infer_before(bundle, tensors, case.parent, Path(place) / "before")
        after = _infer_after(folder, config, case.parent, Path(place) / "after")
        marked = _equal(before, after)
    what = "a generated chest CT" if image is None else "one real image"
    return [
        "MONAI's `verify_metadata`, `verify_net_in_out` and `check_properties`: passed.",
        f"Inference on {what}, before and after the export: equal voxel for voxel ({marked} marked), with the same "
        "affine; the second by `python -m monai.bundle run` in a process without FedMed.",
    ]


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


def _case(folder: Path, image: Path | None, config: Path) -> Path:
    """The image alone in a folder, as inference wants it."""
    folder.mkdir()
    if image is None:
        return phantom(folder / "phantom.nii.gz", config)
    image = Path(image).expanduser().absolute()
    (folder / image.name).symlink_to(image)
    return folder / image.name


def phantom(path: Path, config: Path) -> Path:
    """Write a generated chest CT, not much larger than one window of the bundle's inference."""
    from fedmed.data.synthetic.chest_ct import SITES, make_scan, tiny

    content = ConfigParser.load_config_file(config)
    spacing, window = content.get("pixdim"), content.get("window_size")
    if spacing is None or window is None or len(window) != 3:
        raise ExportError("--verify: a generated image exists for chest CT only; name an image: --verify IMAGE")
    scan = make_scan(tiny(SITES["ct_south"]), "phantom")  # of all axes reversed
    sizes = np.linalg.norm(scan.affine[:3, :3], axis=0)
    wanted = np.ceil(1.1 * np.multiply(window, spacing) / sizes).astype(int)
    start = [max(0, (n - w) // 2) for n, w in zip(scan.image.shape, wanted, strict=True)]
    part = tuple(slice(s, s + int(w)) for s, w in zip(start, wanted, strict=True))
    affine = scan.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ start
    nib.save(nib.Nifti1Image(scan.image[part], affine), path)
    return path


def _infer_before(bundle: Bundle, tensors: Mapping[str, Tensor], images: Path, out: Path) -> Path:
    """The installed bundle with overlays, overrides and the run's own tensors."""
    out.mkdir()
    torch.save(dict(tensors), out / "model.pt")
    files = [str(bundle.config_file("inference")), *map(str, bundle.files[1:])]
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


def _equal(before: Path, after: Path) -> int:
    """Compare the results of both; return how many voxels of theirs are not 0."""
    names = [sorted(path.relative_to(folder) for path in folder.rglob("*.nii*")) for folder in (before, after)]
    if names[0] != names[1] or not names[0]:
        raise ExportError(f"before the export inference wrote {len(names[0])} results, after it {len(names[1])}")
    marked = 0
    for name in names[0]:
        one, other = nib.load(before / name), nib.load(after / name)
        if one.shape != other.shape or not np.array_equal(one.affine, other.affine):
            raise ExportError(
                f"{name}: the grid is {other.shape} after the export, it was {one.shape}, or its affine moved"
            )
        a, b = np.asarray(one.dataobj), np.asarray(other.dataobj)
        if not np.array_equal(a, b):
            raise ExportError(f"{name}: {int((a != b).sum())} of {a.size} voxels differ before and after the export")
        marked += int(np.count_nonzero(a))
    return marked
