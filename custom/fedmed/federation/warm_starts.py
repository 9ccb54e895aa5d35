"""Warm starts that runs have in common, trained once."""

import logging
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedmed.bundles.find import SHARED_OVERLAYS
from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import StateError
from fedmed.federation.client import Client
from fedmed.files import SHARED_ROUNDS
from fedmed.jobs.job import Job
from fedmed.messages.answers import Answer, Update
from fedmed.messages.task import Task
from fedmed.privacy.payload import payload_digest
from fedmed.recovery.site_state import ALONE, BEST_MODEL

log = logging.getLogger("fedmed.loop")

FOLDER = "warm_starts"  # beside the runs
UPDATE, STATE = "update.pt", "state.pt"
MOST = 2**30  # bytes that a run keeps of a site
IGNORED = {"study", "keep_rounds", "earlier", "reuse"}  # of a task: what changes nothing of the round's training
PLACE = {"site_index", "site_count"}  # nor do these, with a bundle that does not ask for them


class WarmStarts:
    """Answers tasks as the site would, but takes a round of the warm start from an equal run that has trained it.

    While labelled sites train alone, arms of a table that differ in the others do the very same work. A round is the
    same if the site, its settings, images and code, its role in the job, the received model and all rounds before are.

    Args:
        folder: where rounds are kept, some times a model's size each. It may be deleted while nothing runs.
        rounds: the first ones of the run, which others may have in common with it.
        facts: site -> what its training depends on beside its role and the task, as plain values.
    """

    def __init__(self, folder: Path, rounds: int, facts: Mapping[str, Any]) -> None:
        self.folder, self.rounds, self.facts = folder, rounds, facts
        self._done: dict[str, tuple[int | None, str]] = {}  # site -> its last known round, and that round's name
        self._kept = dict.fromkeys(facts, 0)  # site -> bytes
        self._trained: set[str] = set()  # sites that have trained: their process knows more than the files say

    def answer(self, client: Client, task: Task) -> Answer:
        """Take or train a round of the warm start; everything else is the site's own work."""
        site = client.site.site
        if task.name != "train" or task.round >= self.rounds:
            return client.answer(task)
        if client.job.study.gain:  # its own model is in no equal run
            self._trained.add(client.site.site)
        last_round, before = self._done.get(site, (None, ""))
        if last_round != task.private_round:  # a stopped run goes on: its start is not known
            return client.answer(task)
        name = self._name(client, task, before)
        self._done[site] = task.round, name
        kept = self.folder / name
        if site not in self._trained and (kept / UPDATE).is_file():
            try:
                return _take(client, task, kept)
            except StateError as error:
                log.warning("%s: %s; the site trains round %d itself", site, error, task.round)
        self._trained.add(site)
        answer = client.answer(task)
        if isinstance(answer, Update) and self._kept[site] < MOST:
            _keep(client, answer, kept)
            self._kept[site] += sum(path.stat().st_size for path in kept.iterdir())
        return answer

    def _name(self, client: Client, task: Task, before: str) -> str:
        """The digest of all that the round depends on."""
        known, made_with = client.bundle.parser(), dict(client.state.made_with)
        ignored = IGNORED | {place for place in PLACE if place not in known}
        request = {key: value for key, value in task.config().items() if key not in ignored}
        made_with["overlays"] = [overlay for overlay in made_with["overlays"] if not _only_tells(overlay)]
        if made_with["warm_start_sharing"] is None:  # then all rounds share the same layers
            del made_with["warm_start_rounds"]
        by_role = {"role": client.role, "bundle": client.bundle.digest, "made_with": made_with}
        model = client.state.cached(task.round) if task.reuse else task.tensors
        received = {"tensors": model, "extras": task.extras}
        site = {"site": client.site.site, "facts": self.facts[client.site.site]}
        return payload_digest({"before": before, "task": request, **by_role, **received, **site})


@cache
def _only_tells(overlay: str) -> bool:
    """Tell whether an overlay only makes a site send others something before it trains as ever."""
    path = SHARED_OVERLAYS.get(overlay)
    return path is not None and set(yaml.safe_load(path.read_text(encoding="utf-8"))) == {"metadata"}


def site_answer(site: str, job: Job) -> Callable[[Client, Task], Answer]:
    """Function by which a simulated site answers: of a job and its controls, each takes the rounds of those before."""
    folder, rounds = os.environ.get(SHARED_ROUNDS), job.study.warm_start.rounds
    if not job.study.of_role("unsupervised") and not job.method.moved_by_silent(job.rule):
        rounds = job.study.rounds  # the control that adapts may have all of them
    return WarmStarts(Path(folder), rounds, {site: None}).answer if folder and rounds else Client.answer


def _keep(client: Client, answer: Update, kept: Path) -> None:
    """Save the site's state, its best model so far, and the answer last: a folder with an answer is whole."""
    state = {name: value for name, value in client.state.load(answer.round).items() if name != ALONE}
    save_tensors(kept / STATE, state)
    save_tensors(kept / BEST_MODEL, client.state.best())
    save_tensors(kept / UPDATE, vars(answer))


def _take(client: Client, task: Task, kept: Path) -> Update:
    update, state, best = (load_tensors(kept / name) for name in (UPDATE, STATE, BEST_MODEL))
    if best:
        client.state.keep_best(best["round"], best["score"], best["tensors"])
    before = [] if task.private_round is None else [task.private_round]
    client.state.prune({*before, task.round, *task.keep_rounds})
    client.state.save(**{key: value for key, value in state.items() if key != "made_with"})
    client.progress.event("end", task, **update["metrics"])
    log.info("%s: round %d is that of an equal run, %s", client.site.site, task.round, kept.name[:12])
    return Update(**update)
