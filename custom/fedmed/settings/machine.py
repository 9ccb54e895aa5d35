"""What the YAMLs of a site and of the server say of a machine, checked in the same way."""

from pathlib import Path

import torch


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
