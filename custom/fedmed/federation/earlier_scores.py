"""A model that comes twice under two names is tested once, such as a site's own best that is the selected one, too."""

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

log = logging.getLogger("fedmed.site")


class EarlierScores:
    """What a site found of the models that it has tested in this job, while its process lasts."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[dict[str, float], Path]] = {}

    def again(self, digest: str, folder: Path) -> dict[str, float] | None:
        """The scores of a network that was tested before, whose files are copied; None for a new one.

        Args:
            digest: of the filled network.
            folder: of the files that its test would leave.
        """
        metrics, before = self._found.get(digest, ({}, folder))
        if not metrics or not before.is_dir():
            return None
        if before != folder:
            shutil.rmtree(folder, ignore_errors=True)  # of a test of another model
            shutil.copytree(before, folder)
        log.info("the model was tested before: %s is a copy of %s", folder.name, before.name)
        return dict(metrics)

    def keep(self, digest: str, metrics: Mapping[str, float], folder: Path) -> None:
        """Remember a test whose files lie in a folder."""
        self._found = {known: own for known, own in self._found.items() if own[1] != folder}  # overwritten
        self._found[digest] = dict(metrics), folder
