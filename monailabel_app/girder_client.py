"""Stands for the package of this name, which MONAI Label imports at its start for studies in a Digital Slide Archive.

FedMed serves no such studies. The package itself would load diskcache, which runs what it finds in its folder
(CVE-2025-69872; no version is without it): this module lies before it on the path, so that neither is ever loaded.
"""

from typing import Any

from fedmed.errors import FedMedError


class HttpError(Exception):
    """Error that the package raises."""


class GirderClient:
    """Refuses to be made."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise FedMedError("studies in a Digital Slide Archive are not served; give a folder or a DICOMweb server")
