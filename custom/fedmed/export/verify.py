"""Prove that an exported bundle is one, and that it does what the run's model did."""

import contextlib
import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from monai.bundle import ConfigParser, ConfigWorkflow, verify_metadata, verify_net_in_out
from torch import Tensor

from fedmed.errors import ExportError
from fedmed.export.exporter import Exporter
from fedmed.export.folder import CONFIGS, METADATA
from fedmed.export.formats import quiet

SCHEMA = Path(__file__).with_name("metadata_schema.json")
DRAWN = Path(__file__).with_name("drawn")  # of nobody: drawn by fedmed_demo


def verify(
    folder: Path, config: Path, exporter: Exporter, tensors: Mapping[str, Tensor], image: Path | None
) -> list[str]:
    """Check an exported bundle; return what was checked, in words.

    Args:
        folder, config: the exported bundle, and its ``inference`` config.
        exporter, tensors: of the run's bundle and kind, and the run's model.
        image: the case that both infer; None = a generated one that fits the bundle.

    Raises:
        ExportError: a check fails; says which, and what came out.
    """
    meta = str(folder / CONFIGS / METADATA)
    with quiet():
        _passes("verify_metadata", lambda: verify_metadata(meta_file=meta, filepath=str(SCHEMA)))
        fits = partial(verify_net_in_out, "network_def", meta, device="cpu", bundle_root=str(folder))
        for path in (config, folder / CONFIGS / exporter.bundle.config_file("train").name):
            _passes("verify_net_in_out", partial(fits, config_file=str(path)))
    checks = ["MONAI's `verify_metadata`, `verify_net_in_out` and `check_properties`: passed."]
    with tempfile.TemporaryDirectory(prefix="fedmed-verify-") as place, _paths_restored():
        case, what = _case(Path(place) / "images", image, config)
        images = Path(place) / "images"
        with quiet():
            _passes("check_properties", lambda: _check_properties(config, meta, folder, images))
        return [*checks, exporter.same_results(folder, config, tensors, case, what, Path(place))]


def check_image(image: Path | None) -> None:
    """Refuse an image that is not there, before hours of work."""
    if image is not None and not Path(image).expanduser().is_file():
        raise ExportError(f"--verify: the image {image} does not exist")


def _passes(name: str, check: Callable[[], object]) -> None:
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
def _paths_restored() -> Iterator[None]:
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
        path, what = phantom(folder, meta["network_data_format"]["inputs"]["image"], config)
        return path, f"a generated {what}"
    image = Path(image).expanduser().absolute()
    (folder / image.name).symlink_to(image)
    return folder / image.name, "one real image"


def phantom(folder: Path, image: Mapping[str, Any], config: Path) -> tuple[Path, str]:
    """Write a drawn chest X-ray, frame of an operation or chest CT into a folder; return its file and what it is.

    Args:
        folder: where to.
        image: what the metadata say of the network's input.
        config: the bundle's ``inference``.

    Raises:
        ExportError: a bundle for other images.
    """
    content = ConfigParser.load_config_file(config)
    flat = len(image["spatial_shape"]) == 2
    if flat and image.get("modality") == "xray" and image["num_channels"] == 1:
        return Path(shutil.copy(DRAWN / "chest_xray.png", folder / "phantom.png")), "chest X-ray"
    if flat and image.get("modality") == "endoscopy" and image["num_channels"] % 3 == 0:
        return Path(shutil.copy(DRAWN / "operation.png", folder / "phantom.png")), "frame of an operation"
    if not flat and content.get("pixdim") is not None and len(content.get("window_size") or ()) == 3:
        return _ct(folder / "phantom.nii.gz", np.multiply(content["window_size"], content["pixdim"])), "chest CT"
    raise ExportError(
        "--verify: generated images are chest X-rays, frames of operations and chest CTs only; name an image: "
        "--verify IMAGE"
    )


def _ct(path: Path, window: np.ndarray) -> Path:
    """A chest CT with all axes reversed, not much larger than one window (mm) of the bundle's inference."""
    scan: Any = nib.load(DRAWN / "chest_ct.nii.gz")
    wanted = np.ceil(1.1 * window / np.linalg.norm(scan.affine[:3, :3], axis=0)).astype(int)
    start = [max(0, (n - w) // 2) for n, w in zip(scan.shape, wanted, strict=True)]
    part = tuple(slice(s, s + int(w)) for s, w in zip(start, wanted, strict=True))
    affine = scan.affine.copy()
    affine[:3, 3] += affine[:3, :3] @ start
    nib.save(nib.Nifti1Image(np.asanyarray(scan.dataobj)[part], affine), path)
    return path
