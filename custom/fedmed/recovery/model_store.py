"""The global model's files: where it starts from, and where it is kept."""

import logging
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.aggregation.sharing import Patterns
from fedmed.bundles.bundle_parser import initial_network, named_tensors
from fedmed.bundles.contract import Use
from fedmed.bundles.external_files import encoder_content
from fedmed.data.structure import described
from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import JobError, SharingError
from fedmed.jobs.job import Job
from fedmed.jobs.needed_files import find_model
from fedmed.kinds.find_kind import check_bundle
from fedmed.privacy.payload import kind

log = logging.getLogger("fedmed.server")
MEAN_OF_PRIVATE = "mean_of_private_layers_{round}.pt"
OTHER = "give one of this network, or leave the tensor out of what 'checkpoint_tensors' takes"
LAST, BEST = "FL_global_model.pt", "best_FL_global_model.pt"


class ModelStore:
    """Builds the starting model from the bundle and keeps the global models of a run.

    Args:
        job: its bundle, seed and classes, and what its study names to start from: ``checkpoint``, a state dict or a
            run's global model of which ``checkpoint_tensors`` are taken, all of it by default, or ``encoder``, which
            fills the network's encoder as the bundle's ``encoder`` in ``configs/federation.yaml`` says. Only the server
            needs these files; a job cannot name other folders.
        folder: where ``FL_global_model.pt`` and ``best_FL_global_model.pt`` are written.

    Attributes:
        classes: what the bundle's models look for.
        classes_learnt: the same, where this run learns them; nothing where it learns from images alone.

    Raises:
        BundleError: the bundle lacks what a federation needs.
        JobError: the checkpoint is not a plain file name, there is no such file, or a wrong regular expression.
    """

    def __init__(self, job: Job, folder: Path) -> None:
        study = job.study
        self.folder, self.seed = Path(folder), study.seed
        self.bundle = job.bundle(job.model_role)
        kind = check_bundle(self.bundle, Use())
        said, known = study.structures, self.bundle.classes
        self.classes = described([one.name for one in known], said, known)
        self.classes_learnt = self.classes if kind.labelled or said else []
        self.checkpoint = find_model(self.bundle, "checkpoint", study.checkpoint) if study.checkpoint else None
        self.encoder, self._patterns = study.encoder, study.checkpoint_tensors or None
        try:
            self._chosen = Patterns((".*",) if self._patterns is None else self._patterns)
        except SharingError as error:
            raise JobError(f"'checkpoint_tensors': {error}") from error

    @cached_property
    def _start(self) -> tuple[nn.Module, list[str]]:
        """The bundle's network, and the names of the tensors that the encoder's file fills."""
        network = initial_network(self.bundle.parser_without_site(device="cpu"), self.seed)
        if self.encoder is None:
            return network, []
        kind = type(network).__name__
        if (content := encoder_content(self.bundle, kind)) is None:
            raise JobError(
                f"'encoder': bundle '{self.bundle.name}' fills no encoder of {kind} from a file; leave it out"
            )
        hint = f". It is {content}. Without 'encoder' in the study the network starts from random weights"
        path = find_model(self.bundle, "encoder", self.encoder, hint)
        filled = initial_network(self.bundle.parser_without_site(device="cpu", encoder_checkpoint=str(path)), self.seed)
        before = network.state_dict()
        names = [name for name, tensor in filled.state_dict().items() if not torch.equal(tensor, before[name])]
        log.info("the encoder starts from %s: %d of %d tensors", path, len(names), len(before))
        return filled, names

    @property
    def _network(self) -> nn.Module:
        return self._start[0]

    @cached_property
    def initial(self) -> dict[str, Tensor]:
        """The starting tensors: the checkpoint's, or the bundle's own for the seed."""
        tensors = named_tensors(self._network)
        if self.checkpoint is None:
            return tensors
        loaded, names = _read_checkpoint(self.checkpoint), self.taken
        if not names:
            raise JobError(f"'checkpoint_tensors' {self._patterns} match no tensor of the model; correct them")
        unknown = [name for name in loaded if name not in tensors] if self._patterns is None else []
        if unknown:
            raise self._misfit(unknown[0], "which the model does not have; say what to take in 'checkpoint_tensors'")
        for name in names:
            if name not in loaded:
                raise self._misfit(name, f"which it does not hold; {OTHER}")
            if loaded[name].shape != tensors[name].shape or loaded[name].dtype != tensors[name].dtype:
                raise self._misfit(
                    name, f"which it holds as {kind(loaded[name])}, the model as {kind(tensors[name])}; {OTHER}"
                )
        log.info("the federation starts from %s: %d of %d tensors", self.checkpoint, len(names), len(tensors))
        return {**tensors, **{name: loaded[name] for name in names}}

    def _misfit(self, name: str, what: str) -> JobError:
        return JobError(f"checkpoint {self.checkpoint} does not fit the job's model at tensor '{name}', {what}")

    @cached_property
    def taken(self) -> list[str]:
        """Names of the tensors that come from the checkpoint, or from the encoder's file."""
        return self._chosen.select(self._network.state_dict()) if self.checkpoint else self._start[1]

    @property
    def groups(self) -> dict[str, list[str]]:
        """The network's sharing groups, from the bundle."""
        return self.bundle.groups(self._network)

    def describe(self) -> dict[str, Any]:
        """Plain facts for the run's record."""
        bundle = self.bundle
        facts: dict[str, Any] = {"bundle": bundle.name, "version": bundle.version, "digest": bundle.digest}
        facts |= {"overlays": bundle.overlays, "overrides": bundle.overrides, "seed": self.seed}
        facts |= {"checkpoint": self.checkpoint.name} if self.checkpoint else {}
        facts |= {"encoder": self.encoder} if self.encoder else {}
        return facts | ({"checkpoint_tensors": self._patterns} if self._patterns is not None else {})

    def save(self, tensors: Mapping[str, Tensor], meta: Mapping[str, Any], best: bool) -> None:
        """Keep a global model; an earlier file is replaced only by a complete one."""
        save_tensors(self.folder / (BEST if best else LAST), {"model": dict(tensors), "meta": dict(meta)})

    def keep_mean(self, round: int, tensors: Mapping[str, Tensor], meta: Mapping[str, Any]) -> Path:
        """Keep the mean of released private layers that belong to the model after a round, for an export.

        Raises:
            StateError: it cannot be written.
        """
        path = self.folder / MEAN_OF_PRIVATE.format(round=round)
        save_tensors(path, {"tensors": dict(tensors), "meta": {"round": round, **meta}})
        return path


def _read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file that is a bare state dict or a run's global model."""
    content = load_tensors(path)
    model = content.get("model", content) if isinstance(content, Mapping) else None
    if not isinstance(model, Mapping) or not model or not all(isinstance(value, Tensor) for value in model.values()):
        raise JobError(f"checkpoint {path} does not hold named tensors; give a state dict or a run's global model")
    return dict(model)
