"""Run a bundle's own inference on one image, in this process."""

import json
import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nibabel as nib
import numpy as np
from monai.bundle import ConfigParser, ConfigWorkflow

from fedmed.data.cases import hush_dicom_decoder
from fedmed.data.image_size import require_fits
from fedmed.errors import BundleError, FedMedError, unwrapped

CONFIGS = ("configs/inference.yaml", "configs/inference.json")
WEIGHTS = "models/model.pt"
NOISY = ("monai", "ignite")  # MONAI names temporary files, Ignite logs the traceback of an error that is raised too


def check_ready(root: Path) -> dict[str, Any]:
    """Return the metadata of a bundle that can infer.

    Raises:
        BundleError: not a folder, not a bundle (``configs/metadata.json`` and ``configs/inference.*``), or no weights.
    """
    root = Path(root)
    if not root.is_dir():
        raise BundleError(f"the bundle {root} does not exist; give the folder that fedmed export wrote")
    if not any((root / name).is_file() for name in CONFIGS):
        raise BundleError(f"{root} is not a bundle for inference: {CONFIGS[0]} is missing")
    if not (root / WEIGHTS).is_file():
        raise BundleError(f"{root} has no weights ({WEIGHTS}); export a trained federation with them: "
                          "fedmed export RUN OUT")  # fmt: skip
    try:
        metadata: dict[str, Any] = json.loads((root / "configs" / "metadata.json").read_text(encoding="utf-8"))
        if not isinstance(metadata["version"], str):
            raise TypeError("the version is not a text")
        return metadata
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BundleError(f"{root}/configs/metadata.json cannot be read ({error}); export the bundle again") from error


def infer_image(root: Path, image: Path, **settings: Any) -> nib.Nifti1Image:
    """Return the result of ``python -m monai.bundle run`` for one image.

    Args:
        root: a bundle with weights; its ``inference.*`` reads images from ``dataset_dir`` and writes one result each
            to ``output_dir``, as MONAI's bundles do.
        settings: values of ``inference.*`` to replace, such as ``device="cpu"``.

    Returns:
        The result with its array in memory: for a segmentation the labels (X, Y, Z) on the image's own grid.

    Raises:
        BundleError: the bundle is incomplete, its weights do not fit, or it cannot read the image.
        DataError: the image does not fit into memory.
    """
    root, image = Path(root).resolve(), Path(image).resolve()
    check_ready(root)
    require_fits(image)
    config = next(root / name for name in CONFIGS if (root / name).is_file())
    with tempfile.TemporaryDirectory(prefix="fedmed-infer-") as place:
        inputs, outputs = Path(place) / "in", Path(place) / "out"
        inputs.mkdir()
        (inputs / image.name).symlink_to(image)
        facts = {"bundle_root": str(root), "dataset_dir": str(inputs), "output_dir": str(outputs)}
        run_inference(root, [config], {**facts, **settings})
        results = sorted(outputs.rglob("*.nii*"))
        if len(results) != 1:
            raise BundleError(f"bundle {root.name} wrote {len(results)} results for {image}; exactly one is expected")
        result = nib.Nifti1Image.from_filename(results[0])
        return nib.Nifti1Image(np.asarray(result.dataobj), result.affine)


def run_inference(root: Path, configs: Sequence[Path], values: Mapping[str, Any]) -> None:
    """Run a bundle's inference in this process. What the bundle itself logs is told, but not MONAI's progress.

    Raises:
        BundleError: it fails; says why.
    """
    with inference_errors(root):
        workflow = _workflow(root, configs, values)
        workflow.run()
        workflow.finalize()


def open_inference(root: Path, values: Mapping[str, Any]) -> ConfigParser:
    """A bundle's inference, whose parts are to be used one by one; its code is found from then on.

    Raises:
        BundleError: it fails; says why.
    """
    config = next(root / name for name in CONFIGS if (root / name).is_file())
    with inference_errors(root):
        parser: ConfigParser = _workflow(root, [config], values).parser
    return parser


def _workflow(root: Path, configs: Sequence[Path], values: Mapping[str, Any]) -> ConfigWorkflow:
    meta, files = str(root / "configs" / "metadata.json"), [str(config) for config in configs]
    workflow = ConfigWorkflow(files, meta_file=meta, logging_file=False, workflow_type="inference", **values)
    workflow.initialize()
    return workflow


@contextmanager
def inference_errors(root: Path) -> Iterator[None]:
    """Within it a bundle's own code runs: MONAI's progress is not told, and what fails is a BundleError."""
    hush_dicom_decoder()
    try:
        with _hushed():
            yield
    except FedMedError:
        raise
    except Exception as error:  # noqa: BLE001 - a bundle is foreign code and MONAI wraps whatever it raises
        cause = unwrapped(error)
        reason = " ".join(f"{type(cause).__name__}: {cause}".split())
        raise BundleError(f"bundle {root.name} fails at inference: {reason}") from error


@contextmanager
def _hushed() -> Iterator[None]:
    """Keep from all handlers what the libraries in ``NOISY`` log."""
    made = (logging.getLogger(name) for name in tuple(logging.root.manager.loggerDict) if _is_noisy(name))
    handlers = {handler for logger in (logging.root, *made) for handler in logger.handlers}
    handlers |= {logging.lastResort} if logging.lastResort else set()

    def passes(record: logging.LogRecord) -> bool:
        return not _is_noisy(record.name)

    for handler in handlers:
        handler.addFilter(passes)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(passes)


def _is_noisy(logger: str) -> bool:
    return logger.partition(".")[0] in NOISY
