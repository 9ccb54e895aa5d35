"""The global model's files: where it starts from, and where it is kept."""

import logging
import re
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from fedmed.bundles.load import Bundle
from fedmed.errors import JobError
from fedmed.federation.model import initial_network, merge, named_tensors
from fedmed.federation.state import load_tensors, save_tensors

log = logging.getLogger("fedmed.server")
LAST, BEST = "FL_global_model.pt", "best_FL_global_model.pt"


class ModelStore:
    """Builds the starting model from the bundle and keeps the global models of a run.

    Args:
        folder: where ``FL_global_model.pt`` and ``best_FL_global_model.pt`` are written.
        bundle: name of the bundle.
        overlays: overlays that define the network.
        overrides: plain values for overridable settings.
        seed: seed of the initial weights.
        checkpoint: name of a file in the bundle's ``models/`` to start from (a bare state dict, or a run's global
            model); None = initial weights. Only the server needs the file. A job cannot name other folders.

    Raises:
        JobError: the checkpoint is not a plain file name, or there is no such file.
    """

    def __init__(
        self,
        folder: Path,
        bundle: str,
        overlays: list[str] | None = None,
        overrides: Mapping[str, Any] | None = None,
        seed: int = 0,
        checkpoint: str | None = None,
    ) -> None:
        self.folder, self.seed = Path(folder), seed
        self.bundle = Bundle(bundle, overlays or (), overrides)
        self.checkpoint = self._find(checkpoint) if checkpoint else None

    def _find(self, name: str) -> Path:
        models = self.bundle.root / "models"
        if not re.fullmatch(r"\w[\w.-]*", name):
            raise JobError(f"checkpoint {name!r} is not a plain file name; put the file into {models} and name it")
        if not (models / name).is_file():
            raise JobError(f"checkpoint '{name}' is not in {models}; put it there, at the server")
        return models / name

    @classmethod
    def from_args(cls, args: Mapping[str, Any], folder: Path) -> "ModelStore":
        """Build a store from the plain arguments of a job's persistor.

        Raises:
            JobError: an argument that no store knows.
        """
        try:
            return cls(folder, **args)
        except TypeError as error:
            raise JobError(f"the persistor's arguments in the job are wrong: {error}") from error

    @cached_property
    def _network(self) -> nn.Module:
        return initial_network(self.bundle.parser(device="cpu"), self.seed)

    @cached_property
    def initial(self) -> dict[str, Tensor]:
        """The starting tensors: the checkpoint's, or the bundle's own for the seed."""
        tensors = named_tensors(self._network)
        if self.checkpoint is None:
            return tensors
        content = load_tensors(self.checkpoint)
        log.info("the federation starts from %s", self.checkpoint)
        return merge(tensors, content.get("model", content), tensors)

    @property
    def groups(self) -> dict[str, list[str]]:
        """The network's sharing groups, from the bundle."""
        return self.bundle.groups(self._network)

    def describe(self) -> dict[str, Any]:
        """Plain facts for the run's record."""
        facts = {"bundle": self.bundle.name, "version": self.bundle.version, "digest": self.bundle.digest}
        return {**facts, "overlays": self.bundle.overlays, "overrides": self.bundle.overrides, "seed": self.seed}

    def save(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], best: bool) -> None:
        """Keep a global model; an earlier file is replaced only by a complete one."""
        save_tensors(self.folder / (BEST if best else LAST), {"model": dict(tensors), "meta": dict(meta)})
