"""ξ, the vector that describes a site to its selection of channels (Fang et al. 2025, arXiv, section 3 and Table 7).

It is made at the site, from the site's own words or its place, and stays there.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .clip_text import WHERE, text_embedding
from .errors import BundleInputError

PROVIDERS = ("text", "file", "random", "onehot", "gaussian")
OF_FILES = ("text", "file")
WIDTH = 512  # of CLIP ViT-B/32's embeddings
DEVIATION = 0.1  # of the bell curve


def make_indicator(
    provider: str,
    site_name: str = "site",
    site_words: Mapping[str, Any] | None = None,
    site_index: int | None = None,
    site_count: int = 1,
    path: str | Path | None = None,
    width: int | None = None,
    seed: int = 0,
    vector: Sequence[float] | None = None,
    at_site: bool = True,
) -> Tensor:
    """ξ (width,), float32, of one site.

    Args:
        provider: ``text``, the embedding of :func:`prompt` by CLIP's text encoder in the folder ``path``; ``file``, a
            vector in the file ``path``; ``random``; ``onehot``; or ``gaussian``.
        site_name: of the site.
        site_words: the site's own; ``procedure`` is the kind of operation.
        site_index: its place among the sites, from 0; None = it is not one of them (an unseen site): then one-hot and
            Gaussian vectors are the mean of those of all sites.
        site_count: sites in training.
        width: e that the model expects; None = as the provider has it, 512 for random and Gaussian vectors, and one
            place a site for one-hot vectors.
        seed: of random vectors, together with the site's name.
        vector: ξ itself, as an exported bundle has it; the rest is then not looked at.
        at_site: false: this machine is no site, such as the server, which uses no ξ; what a site would read from its
            files is 0 here.

    Raises:
        BundleInputError: an unknown provider, no ``path`` or ``procedure`` where one is needed, or another width.
    """
    if vector is not None:
        return of_width(torch.tensor(vector, dtype=torch.float32), width, "indicator_vector")
    if provider not in PROVIDERS:
        raise BundleInputError(f"indicator is '{provider}'; use one of {', '.join(PROVIDERS)}")
    if provider in OF_FILES and not at_site:
        return torch.zeros(width or WIDTH)
    if provider == "text":
        return of_width(text_embedding(path, prompt(site_name, site_words or {})), width, f"text encoder {path}")
    if provider == "file":
        return of_width(from_file(path), width, f"indicator file {path}")
    if provider == "random":
        return random_vector(site_name, width or WIDTH, seed)
    if provider == "onehot":
        return one_hot(site_index, site_count, width)
    return gaussian(site_index, site_count, width or WIDTH)


def prompt(site_name: str, site_words: Mapping[str, Any]) -> str:
    """The paper's sentence about a site.

    Raises:
        BundleInputError: the site does not say its procedure.
    """
    procedure = str(site_words.get("procedure") or "").strip()
    if not procedure:
        raise BundleInputError(
            f"the site {site_name} does not say its procedure, which 'indicator: text' needs; write words: "
            "{procedure: nephrectomy} into the site's YAML, or use another indicator"
        )
    return f"This is the Local site {site_name} model and the surgery type is {procedure}"


def from_file(path: str | Path | None) -> Tensor:
    """A vector of a file: ``.pt``, one tensor (e,); or ``.txt`` or ``.csv``, numbers apart by commas or white space.

    Raises:
        BundleInputError: the file is missing or holds something else.
    """
    if path is None or not Path(path).is_file():
        raise BundleInputError(
            f"indicator file {path} does not exist; name a .pt of one tensor (e,), or a .txt of numbers: {WHERE}"
        )
    try:
        if Path(path).suffix == ".pt":
            vector = torch.as_tensor(torch.load(path, map_location="cpu", weights_only=True), dtype=torch.float32)
        else:
            words = Path(path).read_text("utf-8").replace(",", " ").split()
            vector = torch.tensor([float(word) for word in words])
    except Exception as error:  # noqa: BLE001 - torch's unpickler raises a dozen kinds for a file it cannot read
        raise BundleInputError(
            f"indicator file {path} cannot be read ({type(error).__name__}); write it again"
        ) from error
    if vector.ndim != 1 or vector.numel() < 1 or not bool(torch.isfinite(vector).all()):
        raise BundleInputError(
            f"indicator file {path} has shape {tuple(vector.shape)}; it needs one row of finite numbers"
        )
    return vector


def random_vector(site_name: str, width: int = WIDTH, seed: int = 0) -> Tensor:
    """Normally distributed numbers of length 1, the same for the same name and seed on every machine."""
    digest = hashlib.sha256(f"{seed} {site_name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
    vector = torch.randn(width, generator=generator)
    return vector / vector.norm()


def one_hot(index: int | None, count: int, width: int | None = None) -> Tensor:
    """1 at the site's place among the sites, 0 elsewhere; further places up to ``width`` are 0."""
    _check_place(index, count)
    if width is not None and width < count:
        raise BundleInputError(f"one-hot indicators of {count} sites need a width of at least {count}, not {width}")
    rows = torch.eye(count, width or count)
    return rows.mean(dim=0) if index is None else rows[index]


def gaussian(index: int | None, count: int, width: int = WIDTH) -> Tensor:
    """exp(−(x − μ)² / (2 · 0.1²)) at ``width`` points x from 0 to 1; μ is the site's place, the last one's is 1."""
    _check_place(index, count)
    x = torch.linspace(0, 1, width, dtype=torch.float64)
    centres = torch.arange(count, dtype=torch.float64) / max(count - 1, 1)
    rows = torch.exp(-((x - centres[:, None]) ** 2) / (2 * DEVIATION**2))
    return (rows.mean(dim=0) if index is None else rows[index]).float()


def of_width(vector: Tensor, width: int | None, what: str) -> Tensor:
    """The vector, if it has the width that the model expects.

    Raises:
        BundleInputError: it has another.
    """
    if width is not None and vector.numel() != width:
        raise BundleInputError(
            f"{what} gives {vector.numel()} numbers where the model has been made for {width}; use what it was trained "
            "with, or correct 'indicator_width' before training"
        )
    return vector


def _check_place(index: int | None, count: int) -> None:
    if count < 1 or (index is not None and not 0 <= index < count):
        raise BundleInputError(f"site_index is {index} of {count} sites; give 0 to {max(count - 1, 0)}, or null")
