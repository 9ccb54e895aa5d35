"""A site's own facts: where its data lies and what its machine can do. Nothing about the method."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from fedmed.errors import SiteConfigError
from fedmed.files import SHIPPED, SITES, fedmed_home, folders_of
from fedmed.settings.machine import demo_data
from fedmed.settings.privacy import Privacy
from fedmed.settings.site_file import EXAMPLE, SiteFile
from fedmed.settings.yaml_model import Document, check_model, read_yaml
from fedmed.site_names import name_fault

DEMO_SITES = SHIPPED / "site_configs" / "demo"


@dataclass(frozen=True)
class SiteConfig:
    """One site's settings, checked, with defaults filled in; what is not named here is as in :class:`SiteFile`.

    Attributes:
        data_root: folder that holds every image of the site; nothing outside it is read as data.
        datalist: MONAI/MSD-style JSON with ``training``, ``validation``, ``testing`` and/or ``unlabeled``.
        device: ``cpu``, ``cuda`` or ``cuda:<index>`` (``auto`` has been resolved).
        threads: CPU threads used by torch; part of what makes two runs bit-identical.
        max_batch_size: upper limit of this machine; a job's larger batch is cut to it, and that is logged.
        allow_release: whether the site hands out its private layers when a job asks for them, so that sites without a
            trained part of their own can be scored with it.
        allow_kept_release: whether the mean of what all sites release may be kept at the server for an export.
        words: name -> short text, which a bundle's configuration gets as ``site_words``; it stays at the site.
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
    allow_kept_release: bool = False
    train_alone: bool = True
    words: Mapping[str, str] = field(default_factory=dict, hash=False)


def find_site_file(site: str, workspace: Path | None = None) -> Path:
    """Return the site's YAML: the provisioned workspace, ``$FEDMED_HOME/sites``, then ``site_configs/demo``.

    A folder that the scripts prepare in ``$FEDMED_HOME/sites`` holds its YAML itself: ``<site>/<site>.yaml``.

    Raises:
        SiteConfigError: no file in any of the places; names all of them.
    """
    places = [Path(workspace) / "local" / "fedmed_site.yaml"] if workspace else []
    for folder in folders_of("sites", SITES):
        places += [folder / f"{site}.yaml", folder / site / f"{site}.yaml"]
    places.append(DEMO_SITES / f"{site}.yaml")
    for place in places:
        if place.is_file():
            return place
    looked = "\n".join(f"    {place}" for place in places)
    shapes = ("*.yaml", "*/*.yaml")
    there = {path.stem for folder in folders_of("sites", SITES) for shape in shapes for path in folder.glob(shape)}
    near = get_close_matches(site, there, 1)
    meant = f"Did you mean '{near[0]}'? " if near else f"There are {', '.join(sorted(there))}. " if there else ""
    unset = "$FEDMED_HOME is not set; if the site was prepared with it, first: export FEDMED_HOME=FOLDER\n"
    unset = "" if os.environ.get("FEDMED_HOME") else unset
    raise SiteConfigError(
        f"site '{site}' has no configuration file. Looked at:\n{looked}\n{meant}{unset}Let fedmed prepare make one, or "
        f"write:\n{EXAMPLE}"
    )


def is_demo_site(site: str) -> bool:
    """True where a site of this name is one of the demo's own on this machine."""
    try:
        return find_site_file(site).parent == DEMO_SITES
    except SiteConfigError:
        return False


def has_demo_data(site: str) -> bool:
    """True where the YAML of a site of this name, on this machine, asks for synthetic data."""
    try:
        return read_yaml(find_site_file(site), error=SiteConfigError).values.get("demo") is not None
    except SiteConfigError:
        return False


def load_site(site: str, workspace: Path | None = None) -> SiteConfig:
    """Find, read and check a site's YAML (see :func:`find_site_file` for the order).

    Raises:
        SiteConfigError: no file, or a wrong one; the message shows path, lines, keys, remedies and an example.
    """
    return _checked(site, read_yaml(find_site_file(site, workspace), error=SiteConfigError, example=EXAMPLE))


def load_file(path: Path, site: str | None = None, **instead: Any) -> SiteConfig:
    """Read and check a site's YAML that a person names.

    Args:
        path: the file; a link counts where it lies, as in training.
        site: name of the site in the federation; by default what the file says, or else its own name.
        instead: values that replace those of the file, for work that does not need them.
    """
    path = Path(path).expanduser().absolute()
    document = read_yaml(path, error=SiteConfigError, example=EXAMPLE)
    name = site or str(document.values.get("site") or path.stem)
    return _checked(name, replace(document, values={**document.values, **instead}))


def load_named(name: str, workspace: Path | None = None, site: str | None = None) -> SiteConfig:
    """:func:`load_file` of a YAML or a prepared folder, or :func:`load_site` of a name, whichever a person gives."""
    path = Path(name).expanduser()
    if (prepared := path / f"{path.absolute().name}.yaml").is_file():
        path = prepared  # the folder that a preparation says it wrote
    if path.suffix.lower() not in (".yaml", ".yml") and not path.is_file():
        return load_site(name, workspace)
    return load_file(path, site)


def parse_site(site: str, values: Mapping[str, Any], path: Path) -> SiteConfig:
    """Check the values of one site's YAML, whose folder relative paths start from, and fill in the defaults.

    Raises:
        SiteConfigError: everything that is wrong with it.
    """
    return _checked(site, Document(path, values))


def _checked(site: str, document: Document) -> SiteConfig:
    if fault := name_fault(site):
        raise SiteConfigError(f"{document.path}: {fault}; rename the file, or write another name as 'site' into it")
    privacy = document.values.get("privacy")
    if privacy is None or (isinstance(privacy, Mapping) and privacy.get("account") is None):
        privacy = {**(privacy or {}), "account": str(fedmed_home() / "privacy" / f"{site}.json")}
    if document.values.get("demo") is not None and isinstance(privacy, Mapping):
        privacy = {"min_cases": 1, "min_gain_cases": 1, **privacy}
        if isinstance(listed := privacy.get("allowed_extras", []), list):  # numbers of images that show nobody
            privacy["allowed_extras"] = [*dict.fromkeys([*listed, "fingerprint"])]
    document = replace(document, values={**document.values, "privacy": privacy})
    file = check_model(document, SiteFile, error=SiteConfigError, example=EXAMPLE, context={"site": site})
    given: dict[str, Any] = {name: getattr(file, name) for name in SiteFile.model_fields if name != "demo"}
    root = file.data_root or demo_data(str(file.demo), site)
    given |= {"site": site, "data_root": root, "datalist": root / file.datalist, "source": Path(document.path)}
    given["cache_dir"] = file.cache_dir or (fedmed_home() / "cache").resolve()
    return SiteConfig(**given)
