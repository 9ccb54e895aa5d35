"""The server's own settings: which classes a job may name there beyond FedMed's."""

import os
from pathlib import Path

from fedmed.errors import SiteConfigError
from fedmed.files import SITES, folders_of
from fedmed.settings.site_file import ClassPath
from fedmed.settings.yaml_model import Document, YamlModel, check_model, read_model

EXAMPLE = """\
    allowed_classes: [our_package.methods.OurMethod]  # class paths that jobs may name, beside FedMed's own
"""
ALLOWED = "FEDMED_ALLOWED_CLASSES"  # class paths, separated by commas, for a run without a kit


class ServerFile(YamlModel):
    """Settings of the server."""

    allowed_classes: tuple[ClassPath, ...] = ()
    """Classes of methods and rules beyond FedMed's own that a job may name."""


def load_server(workspace: Path | None = None) -> ServerFile:
    """Read the server's YAML: ``local/fedmed_server.yaml`` of its kit, or else ``$FEDMED_HOME/sites/server.yaml``.

    Args:
        workspace: the server's kit.

    Returns:
        The settings, with the class paths in ``$FEDMED_ALLOWED_CLASSES``; nothing beyond FedMed's own where there is
        neither.

    Raises:
        SiteConfigError: a file that is not readable, or wrong keys or values; the message shows all of them and an
            example.
    """
    places = [Path(workspace) / "local" / "fedmed_server.yaml"] if workspace else []
    places += [folder / "server.yaml" for folder in folders_of("sites", SITES)]
    path = next((place for place in places if place.is_file()), None)
    listed = [name.strip() for name in os.environ.get(ALLOWED, "").split(",") if name.strip()]
    files = [check_model(Document(f"${ALLOWED}", {"allowed_classes": listed}), ServerFile, error=SiteConfigError)]
    if path is not None:
        files.insert(0, read_model(path, ServerFile, error=SiteConfigError, example=EXAMPLE))
    return ServerFile(allowed_classes=tuple(name for file in files for name in file.allowed_classes))
