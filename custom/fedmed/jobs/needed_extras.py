"""Extras of FedMed that a study needs: what its bundle requires, and what a site's own settings add."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from packaging.utils import canonicalize_name

from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError
from fedmed.jobs.job import Job
from fedmed.optional import extras_for, packages_of_extras, pip_line
from fedmed.settings.site import SiteConfig

REQUIRED = "required_packages_version"  # MONAI's own key of metadata.json
NOISE = "opacus"  # the account of a site that adds noise


@dataclass(frozen=True)
class NeededPackage:
    """A package that a study needs on a machine.

    Attributes:
        name: as pip knows it.
        wanted: version that the bundle was made with; None = any.
        here: version that is installed on this machine; None = it is missing.
    """

    name: str
    wanted: str | None
    here: str | None

    @property
    def pinned(self) -> str:
        """Requirement for pip."""
        return f"{self.name}=={self.wanted}" if self.wanted else self.name


def needed_packages(job: Job, site: SiteConfig | None = None) -> list[NeededPackage]:
    """Packages of a study beyond those of every training, by name; a site's own noise needs one more.

    Raises:
        BundleError: the bundle is not installed, or its metadata says wrongly what it requires.
    """
    wanted: dict[str, str | None] = dict(required_packages(job.bundle(job.model_role, site.bundles if site else None)))
    if site is not None and site.privacy.noise_multiplier is not None:
        wanted.setdefault(NOISE, None)
    return [NeededPackage(name, wanted[name], _installed(name)) for name in sorted(wanted)]


def required_packages(bundle: Bundle) -> Mapping[str, str]:
    """Packages that a bundle's metadata requires -> their versions.

    Raises:
        BundleError: they are not texts.
    """
    said = bundle.metadata.get(REQUIRED, {})
    if not isinstance(said, Mapping) or not all(isinstance(text, str) for pair in said.items() for text in pair):
        path = bundle.root / "configs" / "metadata.json"
        raise BundleError(f"{path}: '{REQUIRED}' is {said!r}; write package: version, both texts")
    return {canonicalize_name(name): number for name, number in said.items()}


def extras_line(job: Job, site: SiteConfig | None = None, only_missing: bool = False) -> str:
    """Command that installs what a study needs, such as ``pip install 'fedmed[video,xray]'``; empty for nothing.

    Args:
        only_missing: name what is not installed on this machine.

    Raises:
        BundleError: as :func:`needed_packages`.
    """
    packages = {one.name: one for one in needed_packages(job, site) if not (only_missing and one.here)}
    extras, others = extras_for(packages, packages_of_extras())
    return pip_line(extras, [packages[name].pinned for name in others])


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
