"""A bundle as a server that trains opens it: with an overlay that sites do not get."""

from collections.abc import Mapping
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError


def server_bundle(bundle: Bundle, said: Mapping[str, Any]) -> Bundle:
    """Return the bundle with the server's own overlay and settings on top.

    Args:
        bundle: as sites open it.
        said: by :meth:`fedmed.methods.method.Method.server_training`.

    Raises:
        BundleError: it has no such overlay, the overlay does not offer a setting, or what is said is malformed.
    """
    unknown = sorted(set(said) - {"overlay", "settings"})
    if unknown or not isinstance(said.get("overlay"), str):
        raise BundleError(f"training at the server is described by 'overlay' and 'settings', not by {dict(said)!r}")
    overlays = [*bundle.overlays, said["overlay"]]
    return Bundle(bundle.name, overlays, {**bundle.overrides, **said.get("settings", {})})
