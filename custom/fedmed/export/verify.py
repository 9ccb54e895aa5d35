"""Prove that an exported bundle is one, and that it does what the run's model did."""

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from monai.bundle import ConfigWorkflow, verify_metadata, verify_net_in_out
from torch import Tensor

from fedmed.errors import ExportError
from fedmed.export.exporter import Exporter
from fedmed.export.folder import CONFIGS, METADATA
from fedmed.export.formats import quiet
from fedmed.export.phantoms import phantom

SCHEMA = Path(__file__).with_name("metadata_schema.json")


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
    with tempfile.TemporaryDirectory(prefix="fedmed-verify-") as place, _own_paths():
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
        path, what = phantom(folder, meta["network_data_format"]["inputs"]["image"], config)
        return path, f"a generated {what}"
    image = Path(image).expanduser().absolute()
    (folder / image.name).symlink_to(image)
    return folder / image.name, "one real image"
