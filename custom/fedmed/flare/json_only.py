"""Leave NVFlare no reader of configurations that evaluates what it reads.

This is the second wall, behind :mod:`fedmed.flare.job_gate`: it holds also for a job that nobody has looked at. A kit
names the component first, so that each of its processes, the waiting one and those of jobs, does this before it opens
the first file of a job.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from nvflare import __version__
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import WorkspaceConstants
from nvflare.fuel.utils import secret_utils, wfconf
from nvflare.fuel.utils.config import ConfigFormat, ConfigLoader
from nvflare.fuel.utils.config_factory import ConfigFactory
from nvflare.fuel.utils.json_scanner import Node

from fedmed.errors import JobError, SiteConfigError

PARTS = ((ConfigFactory, "_fmt2Loader"), (wfconf._EnvUpdater, "process_element"), (secret_utils, "SECRET_REF_PATTERN"))
KIT = (WorkspaceConstants.STARTUP_FOLDER_NAME, WorkspaceConstants.SITE_FOLDER_NAME)
_search = ConfigFactory.search_config_format


class RefusingLoader(ConfigLoader):
    """Stands where NVFlare had a reader of another format, and opens nothing."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        name = self.format.value
        raise JobError(f"a configuration in the format {name} is not read here: startup kits of FedMed read JSON alone")

    load_config = load_config_from_str = load_config_from_dict = _refuse


def _literal(self: Any, node: Node) -> None:
    """Leave a text as it is written: a variable in it could be one of the environment."""


def _search_kit(
    init_file_path: str, search_dirs: Sequence[str] | None = None, target_fmt: ConfigFormat | None = None
) -> tuple[ConfigFormat | None, str | None]:
    """Look for a kit's settings in the kit's own folders: NVFlare looks in those of jobs too, which lie beside them."""
    folders: list[str] = []
    for folder in map(Path, search_dirs or [str(Path(init_file_path).parent)]):
        parts = [folder / name for name in KIT]
        folders += map(str, parts if all(part.is_dir() for part in parts) else [folder])
    return _search(init_file_path, folders, target_fmt)


def read_json_only() -> None:
    """Switch off, in this process, all formats but JSON and all references to variables, secrets and files.

    Raises:
        SiteConfigError: this NVFlare is built differently from the one that FedMed was tested with.
    """
    for owner, name in PARTS:
        if not hasattr(owner, name):
            text = f"NVFlare {__version__} has no {owner.__name__}.{name}, so jobs could read files here"
            raise SiteConfigError(f"{text}; install the version in requirements.txt (scripts/setup.sh)")
    for format in set(ConfigFormat) - {ConfigFormat.JSON}:
        ConfigFactory._fmt2Loader[format] = RefusingLoader(format)
    ConfigFactory.search_config_format = staticmethod(_search_kit)
    wfconf._EnvUpdater.process_element = _literal
    secret_utils.SECRET_REF_PATTERN = re.compile(r"(?!)")  # matches nothing, and NVFlare refuses what is left over


class JsonOnly(FLComponent):
    """Part of every kit; does its work when NVFlare builds it."""

    def __init__(self) -> None:
        super().__init__()
        read_json_only()
