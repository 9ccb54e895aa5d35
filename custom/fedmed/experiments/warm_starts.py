"""Warm starts that runs have in common, trained once."""

import logging
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from fedmed.durable_files import link, load_tensors, save_tensors
from fedmed.federation.client import Client
from fedmed.messages.answers import Answer, Update
from fedmed.messages.task import Task
from fedmed.privacy.payload import payload_digest
from fedmed.recovery.site_state import OWN_BEST

log = logging.getLogger("fedmed.loop")

FOLDER = "warm_starts"  # beside the runs
UPDATE = "update.pt"
UNLIKE = {"study", "keep_rounds", "earlier"}  # of a task: what changes nothing of the round's training


class WarmStarts:
    """Answers tasks as the site would, but takes a round of the warm start from an equal run that has trained it.

    While labelled sites train alone, arms of a table that differ in the others do the very same work. A round is the
    same if the site, its settings, images and code, its role in the job, the received model and all rounds before are.

    Args:
        folder: where rounds are kept, some times a model's size each. It may be deleted while nothing runs.
        facts: site -> what its training depends on beside its role and the task, as plain values.
    """

    def __init__(self, folder: Path, facts: Mapping[str, Any]) -> None:
        self.folder, self.facts = folder, facts
        self._done: dict[str, tuple[int | None, str]] = {}  # site -> its last known round, and that round's name
        self._on_its_own: set[str] = set()  # sites that have trained: their process knows more than the files say

    def answer(self, client: Client, task: Task) -> Answer:
        """Take or train a round of the warm start; everything else is the site's own work."""
        site, last = client.site.site, (None, "")
        if task.name != "train" or task.round >= client.sharing["warm_start_rounds"]:
            return client.answer(task)
        if self._done.get(site, last)[0] != task.private_round:  # a stopped run goes on: its start is not known
            return client.answer(task)
        name = self._name(client, task, self._done.get(site, last)[1])
        self._done[site] = task.round, name
        kept = self.folder / name
        if site not in self._on_its_own and (kept / UPDATE).is_file():
            return _take(client, task, kept)
        self._on_its_own.add(site)
        answer = client.answer(task)
        if isinstance(answer, Update):
            _keep(client, answer, kept)
        return answer

    def _name(self, client: Client, task: Task, before: str) -> str:
        """The digest of all that the round depends on."""
        asked = {key: value for key, value in task.config().items() if key not in UNLIKE}
        own = {"role": client.role, "bundle": client.bundle.digest, "made_with": client.state.made_with}
        received = {"tensors": task.tensors, "extras": task.extras}
        site = {"site": client.site.site, "facts": self.facts[client.site.site]}
        return payload_digest({"before": before, "task": asked, **own, **received, **site})


def _keep(client: Client, answer: Update, kept: Path) -> None:
    """Link the site's files and write its answer last, so that a folder with an answer is whole."""
    for path, name in _files(client, answer.round):
        if path.is_file() and not (kept / name).exists() and not link(path, kept / name):
            return  # another disk, or a full one: the round is just not kept
    save_tensors(kept / UPDATE, {field.name: getattr(answer, field.name) for field in fields(answer)})


def _take(client: Client, task: Task, kept: Path) -> Update:
    for path, name in _files(client, task.round):
        if (kept / name).is_file():
            path.unlink(missing_ok=True)  # the site's best of the round before
            link(kept / name, path)
    client.state.prune({task.round, *task.keep_rounds})
    update = Update(**load_tensors(kept / UPDATE))
    client.progress.event("end", task, **update.metrics)
    log.info("%s: round %d is that of an equal run, %s", client.site.site, task.round, kept.name[:12])
    return update


def _files(client: Client, round: int) -> list[tuple[Path, str]]:
    folder = client.state.folder
    return [(folder / f"round_{round}.pt", "state.pt"), (folder / OWN_BEST, OWN_BEST)]
