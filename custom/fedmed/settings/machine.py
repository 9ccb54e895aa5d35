"""Keys that the YAMLs of a site and of the server share: their images, also drawn ones, and their machine."""

from pathlib import Path

import torch
from pydantic import Field, field_validator

from fedmed.class_paths import import_named
from fedmed.errors import SiteConfigError
from fedmed.files import fedmed_home
from fedmed.settings.yaml_model import BesideTheFile, YamlModel

PACKAGE = "fedmed_demo"


def existing_folder(folder: Path | None) -> Path | None:
    """Return a folder that is there.

    Raises:
        ValueError: it does not exist.
    """
    if folder is not None and not folder.is_dir():
        raise ValueError(f"the folder {folder} does not exist; mount it or correct the path")
    return folder


def usable_device(device: str) -> str:
    """Return ``cpu``, ``cuda`` or ``cuda:<index>``; of ``auto`` what this machine has.

    Raises:
        ValueError: another word, or a GPU that this machine does not show.
    """
    cuda = torch.cuda.is_available()
    if device == "auto":
        return "cuda" if cuda else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise ValueError("use auto, cpu, cuda or cuda:<index>") from error
    if kind == "cuda" and not cuda:
        raise ValueError("this machine shows no CUDA device; use auto or cpu")
    return device


class Machine(YamlModel):
    """Place of the images, and the machine's means of training."""

    data_root: BesideTheFile | None = None
    """Folder that holds every image, absolute or relative to this file."""

    demo: str | None = None
    """Kind of demo data, made on first use, in place of data_root."""

    datalist: str = "datalist.json"
    """MONAI datalist, relative to data_root: training, validation, testing, unlabeled; a server's the first alone."""

    device: str = Field("auto", validate_default=True)
    """Where it trains: auto (a GPU if there is one), cpu, cuda, or one GPU such as cuda:1."""

    threads: int = Field(1, ge=1, le=65_536)
    """CPU threads of a job; part of what makes two runs bit-identical."""

    cache_dir: BesideTheFile | None = None
    """Folder of prepared images, readable by its owner only. Default: $FEDMED_HOME/cache."""

    _is_there = field_validator("data_root")(existing_folder)
    _is_a_device = field_validator("device")(usable_device)


def demo_data(kind: str, site: str) -> Path:
    """Return the data root of a synthetic hospital, which is drawn on first use.

    Raises:
        SiteConfigError: the package is not installed.
        DataError: there is no such hospital, or it cannot be written.
    """
    try:
        demo_site = import_named(f"{PACKAGE}.demo_site")
    except ModuleNotFoundError as error:
        if error.name != PACKAGE:
            raise
        raise SiteConfigError(
            f"site '{site}': 'demo: {kind}' asks for a synthetic hospital, and {PACKAGE}, which draws it, is not "
            f"installed here; install it from a checkout of FedMed (pip install ./custom/{PACKAGE}), or write "
            "'data_root' in place of 'demo'"
        ) from None
    made: Path = demo_site(kind, site, fedmed_home())
    return made
