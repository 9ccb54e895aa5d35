"""The server's own settings: classes that a job may name there, and images and machine of a server that trains."""

import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from fedmed.errors import SiteConfigError
from fedmed.files import SHIPPED, SITES, fedmed_home, folders_of
from fedmed.settings.machine import Machine, demo_data
from fedmed.settings.site import is_demo_site
from fedmed.settings.site_file import ClassPath
from fedmed.settings.yaml_model import Contradictions, Document, check_model, read_model

EXAMPLE = """\
    allowed_classes: [our_package.methods.OurMethod]  # class paths that jobs may name, beside FedMed's own
    data_root: /data/synthetic  # where the server trains too: its images and masks lie below this folder
    datalist: datalist.json     # relative to data_root; the list 'training'
    device: auto                # auto | cpu | cuda | cuda:1
    threads: 2                  # CPU threads while it trains
"""
ALLOWED = "FEDMED_ALLOWED_CLASSES"  # class paths, separated by commas, for a run without a kit
CONFIG = "FEDMED_SERVER_CONFIG"  # the server's YAML, for a single run
DEMO = SHIPPED / "site_configs" / "demo_server.yaml"  # beside the folder of the demo's sites


class ServerFile(Machine):
    """Settings of the server. No job can change them."""

    allowed_classes: tuple[ClassPath, ...] = ()
    """Classes of methods and rules beyond FedMed's own that a job may name."""

    demo_site: str | None = None
    """Site of the demo data whose images are the server's."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        mistakes = []
        if self.data_root is not None and self.demo is not None:
            mistakes += [("demo", "give either 'data_root' (a folder) or 'demo' (a kind of demo data)")]
        if (self.demo is None) != (self.demo_site is None):
            key = "demo" if self.demo is None else "demo_site"
            mistakes += [(key, "'demo' (a kind of demo data) and 'demo_site' (one of its sites) go together")]
        if mistakes:
            raise Contradictions(mistakes)
        return self

    def facts(self) -> dict[str, Any]:
        """Ids of a bundle's configuration that only this machine knows -> values, as those of a site.

        Raises:
            SiteConfigError: the settings name no images.
        """
        root = self.data_root or (demo_data(self.demo, str(self.demo_site)) if self.demo else None)
        if root is None:
            raise SiteConfigError(
                "this job trains at the server too, and the server's settings name no images. Write 'data_root' into "
                f"local/fedmed_server.yaml of the server's kit, into the file that ${CONFIG} names, or into "
                f"{folders_of('sites', SITES)[0] / 'server.yaml'}:\n{EXAMPLE}"
            )
        cache = self.cache_dir or (fedmed_home() / "cache").resolve()
        places = {"dataset_dir": str(root), "datalist": str(root / self.datalist), "cache_dir": str(cache)}
        return {**places, "device": self.device, "amp": False, "num_workers": 0}


def load_server(workspace: Path | None = None, sites: Collection[str] = ()) -> ServerFile:
    """Read the server's YAML.

    It is the file that ``$FEDMED_SERVER_CONFIG`` names, or else ``local/fedmed_server.yaml`` of its kit, or else
    ``server.yaml`` in ``$FEDMED_HOME/sites``; that of the demo, where all sites of the job are the demo's own.

    Args:
        sites: of the job that is to run, where its server may train.

    Returns:
        The settings, with the class paths in ``$FEDMED_ALLOWED_CLASSES``; nothing beyond FedMed's own where there is
        neither.

    Raises:
        SiteConfigError: a file that is not readable, or wrong keys or values; the message shows all of them and an
            example.
    """
    listed = [name.strip() for name in os.environ.get(ALLOWED, "").split(",") if name.strip()]
    more = check_model(Document(f"${ALLOWED}", {"allowed_classes": listed}), ServerFile, error=SiteConfigError)
    if (path := _find(workspace, sites)) is None:
        return more
    file = read_model(path, ServerFile, error=SiteConfigError, example=EXAMPLE)
    return file.model_copy(update={"allowed_classes": (*file.allowed_classes, *more.allowed_classes)})


def _find(workspace: Path | None, sites: Collection[str]) -> Path | None:
    if named := os.environ.get(CONFIG):
        path = Path(named).expanduser()
        if not path.is_file():
            raise SiteConfigError(f"${CONFIG} is {named!r}, and there is no such file; correct it or leave it empty")
        return path
    places = [Path(workspace) / "local" / "fedmed_server.yaml"] if workspace else []
    places += [folder / "server.yaml" for folder in folders_of("sites", SITES)]
    places += [DEMO] if sites and all(map(is_demo_site, sites)) else []
    return next((place for place in places if place.is_file()), None)
