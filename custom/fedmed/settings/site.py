"""A site's own facts: where its data lies and what its machine can do. Nothing about the method."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import yaml

from fedmed.errors import SiteConfigError
from fedmed.files import fedmed_home
from fedmed.settings.privacy import Privacy, parse_privacy
from fedmed.settings.server import class_paths

EXAMPLE = """\
    site: hospital_a            # optional; must equal the site's name in the federation
    data_root: /data/chest_ct   # images and masks lie below this folder
    datalist: datalist.json     # MONAI datalist, relative to data_root
    device: auto                # auto | cpu | cuda | cuda:1
    threads: 2                  # CPU threads of one process
    workers: 0                  # processes that load images
    amp: false                  # mixed precision (GPU only)
    allow_release: false        # may a job score other sites with this site's private layers?
    privacy: {}                 # what may leave: see docs/privacy.md
    allowed_classes: []         # class paths of methods that jobs may name here, beside FedMed's own
"""
CHECKOUT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class SiteConfig:
    """One site's settings, checked.

    Attributes:
        site: name of the site in the federation.
        data_root: folder that holds every image of the site; nothing outside it is read as data.
        datalist: MONAI/MSD-style JSON with ``training``, ``validation``, ``testing`` and/or ``unlabeled``.
        device: ``cpu``, ``cuda`` or ``cuda:<index>`` (``auto`` has been resolved).
        threads: CPU threads used by torch; part of what makes two runs bit-identical.
        workers: processes that load images.
        amp: automatic mixed precision; GPU only.
        cache_dir: folder of preprocessed cases, readable by the owner only.
        max_batch_size: upper limit of this machine; a job's larger batch is cut to it, and that is logged.
        bundles: folder of this site's bundles, or None for the defaults.
        source: the file the settings come from.
        allow_release: whether the site hands out its private layers when a job asks for them, so that sites without a
            trained part of their own can be scored with it. A job can only ask.
        privacy: the site's limits on what leaves it.
        allowed_classes: class paths of methods outside ``fedmed.methods`` that a job may name at this site.
    """

    site: str
    data_root: Path
    datalist: Path
    device: str
    threads: int
    workers: int
    amp: bool
    cache_dir: Path
    max_batch_size: int | None
    bundles: Path | None
    source: Path
    privacy: Privacy
    allow_release: bool = False
    allowed_classes: tuple[str, ...] = ()


_KEYS = {f.name for f in fields(SiteConfig)} - {"source"} | {"demo"}


def find_site_file(site: str, workspace: Path | None = None) -> Path:
    """Return the site's YAML: the provisioned workspace, ``$FEDMED_SITE_CONFIGS``, then ``site_configs/demo``.

    Raises:
        SiteConfigError: no file in any of the places; names all of them.
    """
    places = [Path(workspace) / "local" / "fedmed_site.yaml"] if workspace else []
    if folder := os.environ.get("FEDMED_SITE_CONFIGS"):
        places.append(Path(folder).expanduser() / f"{site}.yaml")
    places.append(CHECKOUT / "site_configs" / "demo" / f"{site}.yaml")
    for place in places:
        if place.is_file():
            return place
    looked = "\n".join(f"    {place}" for place in places)
    raise SiteConfigError(f"site '{site}' has no configuration file. Looked at:\n{looked}\nWrite one:\n{EXAMPLE}")


def load_site(site: str, workspace: Path | None = None) -> SiteConfig:
    """Find, read and check a site's YAML (see :func:`find_site_file` for the order).

    Raises:
        SiteConfigError: missing or malformed file, unknown key or value; the message shows path, key and an example.
    """
    path = find_site_file(site, workspace)
    return parse_site(site, _read_yaml(path), path)


def load_file(path: Path, site: str | None = None, **instead: Any) -> SiteConfig:
    """Read and check a site's YAML that a person names.

    Args:
        path: the file; a link counts where it lies, as in training.
        site: name of the site in the federation; by default what the file says, or else its own name.
        instead: values that replace those of the file, for work that does not need them.

    Raises:
        SiteConfigError: as :func:`load_site`.
    """
    path = Path(path).expanduser().absolute()
    values = _read_yaml(path)
    return parse_site(site or str(values.get("site") or path.stem), {**values, **instead}, path)


def _read_yaml(path: Path) -> Mapping[str, Any]:
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SiteConfigError(f"{path}: not a readable YAML file ({error}). Example:\n{EXAMPLE}") from error
    if not isinstance(values, Mapping):
        raise SiteConfigError(f"{path}: holds {type(values).__name__}, not 'key: value' lines. Example:\n{EXAMPLE}")
    return values


def parse_site(site: str, values: Mapping[str, Any], path: Path) -> SiteConfig:
    """Check the values of one site's YAML and fill in the defaults."""
    unknown = sorted(set(values) - _KEYS)
    if unknown:
        raise SiteConfigError(
            f"{path}: unknown key '{unknown[0]}'. Known: {', '.join(sorted(_KEYS))}. Example:\n{EXAMPLE}"
        )
    if values.get("site", site) != site:
        raise SiteConfigError(f"{path}: key 'site' is '{values['site']}', but this site is called '{site}'")
    data_root = _data_root(site, values, path)
    cache = values.get("cache_dir") or fedmed_home() / "cache"
    return SiteConfig(
        site=site,
        data_root=data_root,
        datalist=data_root / _typed(values, "datalist", str, "datalist.json", path),
        device=_device(_typed(values, "device", str, "auto", path), path),
        threads=_at_least(1, values, "threads", 1, path),
        workers=_at_least(0, values, "workers", 0, path),
        amp=_amp(values, path),
        cache_dir=_absolute(cache, path),
        max_batch_size=_at_least(1, values, "max_batch_size", None, path),
        bundles=_absolute(values["bundles"], path) if values.get("bundles") else None,
        source=path,
        privacy=_privacy(site, values, path),
        allow_release=_typed(values, "allow_release", bool, False, path) is True,
        allowed_classes=class_paths(values.get("allowed_classes"), path),
    )


def _privacy(site: str, values: Mapping[str, Any], path: Path) -> Privacy:
    privacy = parse_privacy(values.get("privacy"), path, fedmed_home() / "privacy" / f"{site}.json")
    if privacy.noise_multiplier is not None and values.get("allow_release"):
        raise SiteConfigError(
            f"{path}: key 'allow_release' is true, but 'privacy.noise_multiplier' is set: released layers carry no "
            "noise, so the account would be void; choose one of the two"
        )
    return privacy


def _absolute(value: Any, path: Path) -> Path:
    """A relative path is relative to the YAML: a simulator changes the working directory."""
    return (path.parent / Path(str(value)).expanduser()).resolve()


def _data_root(site: str, values: Mapping[str, Any], path: Path) -> Path:
    if ("demo" in values) == ("data_root" in values):
        raise SiteConfigError(
            f"{path}: give either 'data_root' (a folder) or 'demo' (a kind of demo data). Example:\n{EXAMPLE}"
        )
    if "demo" in values:
        from fedmed.data.synthetic import demo_site  # the generator is only needed at demo sites

        return demo_site(_typed(values, "demo", str, None, path), site, fedmed_home())
    root = _absolute(_typed(values, "data_root", str, None, path), path)
    if not root.is_dir():
        raise SiteConfigError(
            f"{path}: key 'data_root': the folder {root} does not exist; mount it or correct the path"
        )
    return root


def _typed(values: Mapping[str, Any], key: str, kind: type, default: Any, path: Path) -> Any:
    value = values.get(key, default)
    if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
        raise SiteConfigError(f"{path}: key '{key}' is {value!r}; it must be a {kind.__name__}. Example:\n{EXAMPLE}")
    return value


def _at_least(least: int, values: Mapping[str, Any], key: str, default: int | None, path: Path) -> int | None:
    value = _typed(values, key, int, default, path)
    if value is not None and value < least:
        raise SiteConfigError(f"{path}: key '{key}' is {value}; it must be at least {least}")
    return value


def _device(device: str, path: Path) -> str:
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        kind = torch.device(device).type
    except RuntimeError as error:
        raise SiteConfigError(f"{path}: key 'device' is '{device}'; use auto, cpu, cuda or cuda:<index>") from error
    if kind == "cuda" and not torch.cuda.is_available():
        raise SiteConfigError(
            f"{path}: key 'device' is '{device}', but this machine shows no CUDA device; use auto or cpu"
        )
    return device


def _amp(values: Mapping[str, Any], path: Path) -> bool:
    amp = bool(_typed(values, "amp", bool, False, path))
    if amp and _device(values.get("device", "auto"), path) == "cpu":
        raise SiteConfigError(f"{path}: key 'amp' is true, but the device is the CPU; mixed precision needs a GPU")
    return amp
