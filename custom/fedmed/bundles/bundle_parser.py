"""MONAI's parser of configurations, which does once in a process what it would do anew for each bundle opened."""

from collections.abc import Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

from monai.bundle import ComponentLocator, ConfigParser

from fedmed.errors import BundleError
from fedmed.moved_classes import hint
from fedmed.yaml_limits import check_limits


class BundleParser(ConfigParser):
    """As MONAI's, but quick to make: a run opens the same few files hundreds of times.

    A file is read each time, but what its text means is worked out again only where the text has changed: PyYAML takes
    some 30 ms for a bundle's configuration, and that was most of the time that a job needed to be checked and written.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.locator = _Locator(self.locator.excludes)

    @classmethod
    def load_config_file(cls, filepath: Any, **settings: Any) -> dict[str, Any]:
        """Content of a YAML or JSON file, the caller's own copy; errors are MONAI's, PyYAML's and the system's."""
        if settings or not filepath:
            content: dict[str, Any] = super().load_config_file(filepath, **settings)
            return content
        return deepcopy(_content(str(filepath), Path(filepath).read_bytes()))


class _Locator(ComponentLocator):
    """Where the classes are that a configuration names without their module: MONAI is looked through once."""

    def _find_classes_or_functions(self, modnames: Sequence[str] | str) -> dict[str, list[str]]:
        return _classes((modnames,) if isinstance(modnames, str) else tuple(modnames))


@lru_cache(maxsize=8)
def _classes(modules: tuple[str, ...]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = ComponentLocator()._find_classes_or_functions(modules)
    return found


@lru_cache(maxsize=256)
def _content(path: str, text: bytes) -> dict[str, Any]:
    if not path.endswith(".json"):
        check_limits(text.decode(errors="replace"))
    if moved := hint(text.decode(errors="replace")):
        raise BundleError(f"{path}: {moved}")
    content: dict[str, Any] = ConfigParser.load_config_file(path)
    return content
