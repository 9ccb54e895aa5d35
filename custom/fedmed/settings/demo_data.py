"""Synthetic hospitals, where the package that draws them is installed; a hospital need not have it."""

from pathlib import Path

from fedmed.class_paths import import_named
from fedmed.errors import SiteConfigError
from fedmed.files import fedmed_home

PACKAGE = "fedmed_demo"


def demo_data(kind: str, site: str) -> Path:
    """Return the data root of a synthetic hospital, which is drawn on first use.

    Args:
        kind: federation, such as ``chest_ct``.
        site: one of its hospitals.

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
