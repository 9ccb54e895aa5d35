"""A job: a study with its method, and what server and sites are built from."""

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmed.errors import JobError
from fedmed.jobs.plan import Plan
from fedmed.jobs.rule_spec import MEAN
from fedmed.jobs.study import Study
from fedmed.jobs.study_text import changed_text, dumped, mistakes, parse_study, place_of
from fedmed.methods.load import load_method
from fedmed.methods.method import Method

STUDY = "study.yaml"


@dataclass(frozen=True)
class Job:
    """A study that contradicts neither itself nor its method.

    Attributes:
        text: the study as it was written.
        study: the same, checked.
        method: the object that it names.
        source: file of the study, for messages.
        app: folder of the server's app, where the job was read from one.
        allowed: class paths outside FedMed's own rooms that this machine's settings list.
    """

    text: str
    study: Study
    method: Method
    source: str = STUDY
    app: Path | None = None
    allowed: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, source: str = STUDY, allowed: Collection[str] = (), app: Path | None = None) -> "Job":
        """Make a job from a study's text.

        Args:
            text: YAML.
            source, allowed, app: see above.

        Raises:
            JobError: every mistake of the study, or every contradiction in it, with key, place, value and remedy.
        """
        study = parse_study(text, source)
        try:
            method = load_method(study.method.model_dump(), allowed)
        except JobError as error:
            raise mistakes([(place_of("'method'", text, source), str(error))], source) from error
        job = cls(text, study, method, source, app, tuple(allowed))
        job.refuse(job._contradictions())
        return job

    @classmethod
    def of(cls, values: Mapping[str, Any], allowed: Collection[str] = ()) -> "Job":
        """Make a job from a study's values."""
        return cls.parse(dumped(dict(values)), allowed=allowed)

    def changed(self, values: Mapping[str, Any]) -> "Job":
        """The job with other values of some keys of its study."""
        return Job.parse(changed_text(self.text, values, self.source), self.source, self.allowed, self.app)

    def refuse(self, found: Iterator[str]) -> None:
        """Raise one error for all that was found.

        Raises:
            JobError: there is something.
        """
        told = list(dict.fromkeys(found))
        if told:
            raise mistakes([(place_of(text, self.text, self.source), text) for text in told], self.source)

    def _contradictions(self) -> Iterator[str]:
        """What cannot be meant, whatever bundle is installed."""
        study, sites = self.study, self.study.sites
        yield from (f"'sites': {text}" for text in self.method.misfits(sites))
        try:
            _ = self.plan
        except JobError as error:
            yield str(error).replace("'warm_start_rounds'", "'warm_start.rounds'")
        if unknown := sorted(set(study.user_weights) - set(sites)):
            yield f"'user_weights' is for '{unknown[0]}', which is not one of the sites: {', '.join(sorted(sites))}"
        if study.release_from is not None and study.sharing == "full" and study.buffers != "local":
            yield "'release_from' asks for private layers, but all are shared; choose a partial 'sharing'"
        if study.checkpoint_tensors and not study.checkpoint:
            yield "'checkpoint_tensors' says what is taken from a 'checkpoint'; name that too"
        if study.clip_norm and study.max_norm is not None and study.clip_norm >= study.max_norm:
            yield f"'clip_norm' {study.clip_norm:g} never acts: 'max_norm' refuses from {study.max_norm:g} on"

    @property
    def server_app(self) -> str:
        """Name of the folder of the server's app."""
        return self.app.name if self.app else "app_server"

    @property
    def name(self) -> str:
        """The job's name."""
        return self.study.name

    @cached_property
    def digest(self) -> str:
        """Hash of the study's text, equal at server and sites."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def plan(self) -> Plan:
        """Who takes part in which round."""
        return Plan(**self.controller)

    @property
    def controller(self) -> dict[str, Any]:
        """Plain arguments of :class:`fedmed.jobs.plan.Plan`; what has its default is left out."""
        study = self.study
        said = study.model_dump(
            exclude_defaults=True,
            include={
                "min_clients", "validate_every", "select", "evaluate", "evaluate_last", "release_from",
                "task_timeout", "max_failed_rounds", "collapse_guard", "patience", "min_rounds",
            },
        )  # fmt: skip
        length: dict[str, Any] = {"steps": study.steps, "epochs": study.epochs}
        args: dict[str, Any] = {
            "job": study.name,
            "method": study.method.model_dump(),
            "sites": dict(sorted(study.sites.items())),
        }
        args |= {"rounds": study.rounds, **{key: value for key, value in length.items() if value is not None}}
        args |= {"warm_start_rounds": study.warm_start.rounds, **said}
        args |= {"exchange": exchange} if (exchange := self.method.exchange()) else {}
        if study.resume:
            args |= {"resume": study.resume.job} | ({"fresh": study.resume.fresh} if study.resume.fresh else {})
        return args

    @property
    def rule(self) -> dict[str, Any]:
        """``path`` and ``args`` of the server's rule: the method's, as far as the study does not say otherwise."""
        own, said = self.method.rule(), self.study.rule
        if said is None:
            return own
        if said.path in (None, own["path"]):
            return {"path": own["path"], "args": {**own["args"], **said.args}}
        return {"path": said.path, "args": dict(said.args)}

    @property
    def aggregator(self) -> dict[str, Any]:
        """What the server aggregates by: class path and arguments of the rule, and what each role shares."""
        study, rule = self.study, self.rule
        receives = {role: made.receives for role, made in self.method.roles().items() if made.receives}
        sends = {role: made.sends for role, made in self.method.roles().items() if made.sends}
        sharing = study.sharing if not receives else {r: receives.get(r, study.group(r)) for r in self.method.roles()}
        args = {"sharing": sharing, "buffers": study.buffers}
        args |= {"sends": sends} if sends else {}
        args |= {"warm_start_sharing": study.warm_start.sharing} if study.warm_start.sharing else {}
        said = study.model_dump(exclude_defaults=True, include={"normalise", "user_weights", "max_norm", "clip_norm"})
        return {**args, **said, **(rule["args"] if rule["path"] == MEAN else {"rule": rule})}

    @property
    def model_role(self) -> str:
        """The role whose network the server has: the labelled sites', or that of the others where there are none."""
        return "supervised" if "supervised" in self.study.sites.values() else "unsupervised"

    @property
    def persistor(self) -> dict[str, Any]:
        """Plain arguments of :class:`fedmed.recovery.model_store.ModelStore`."""
        study = self.study
        args = {"bundle": study.bundle, "seed": study.seed, **self._network(self.model_role)}
        args |= {"checkpoint": study.checkpoint} if study.checkpoint else {}
        return args | ({"checkpoint_tensors": study.checkpoint_tensors} if study.checkpoint_tensors else {})

    def _network(self, role: str) -> dict[str, Any]:
        overlays = [*self.study.overlays, *self.method.role(role).overlays]
        overrides = {str(name): values for name, values in self.study.overrides.items()}
        return {"overlays": overlays, "overrides": dict(overrides.get(role, {}))}

    def of_role(self, role: str) -> dict[str, Any]:
        """Plain arguments of a site of this role, of :class:`fedmed.federation.client.Client`."""
        study, made = self.study, self.method.role(role)
        args = {"bundle": study.bundle, "seed": study.seed, "role": role, **self._network(role)}
        args |= {"sharing": made.receives or study.group(role), "buffers": study.buffers}
        args |= {"sends": made.sends} if made.sends else {}
        args |= {"warm_start_rounds": study.warm_start.rounds}
        args |= {"warm_start_sharing": study.warm_start.sharing} if study.warm_start.sharing else {}
        return args | ({"optimizer_state": study.optimizer_state} if study.optimizer_state != "persist" else {})

    @property
    def clients(self) -> dict[str, dict[str, Any]]:
        """Site -> its plain arguments."""
        return {site: self.of_role(role) for site, role in sorted(self.study.sites.items())}

    def client(self, site: str) -> dict[str, Any]:
        """A site's plain arguments.

        Raises:
            JobError: the study has no such site.
        """
        if site not in self.study.sites:
            known = ", ".join(sorted(self.study.sites))
            raise JobError(f"{self.source} has no site '{site}'; it has {known}. Ask the study lead to add it")
        return self.of_role(self.study.sites[site])
