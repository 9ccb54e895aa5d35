"""A job: a study with its method, and what server and sites are built from."""

import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmed.errors import JobError
from fedmed.jobs.contradictions import contradictions
from fedmed.jobs.plan import Plan
from fedmed.jobs.study import Study
from fedmed.jobs.study_text import changed_text, dumped, parse_study
from fedmed.methods.find_method import load_method
from fedmed.methods.method import MEAN, Method
from fedmed.settings.yaml_document import Mistake, Place, refusal
from fedmed.settings.yaml_model import check_model

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
        lines: of the study's keys, for messages.
    """

    text: str
    study: Study
    method: Method
    source: str = STUDY
    app: Path | None = None
    allowed: tuple[str, ...] = ()
    lines: Mapping[Place, int] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str, source: str = STUDY, allowed: Collection[str] = (), app: Path | None = None) -> "Job":
        """Make a job from a study's text.

        Args:
            text: YAML.
            source, allowed, app: see above.

        Raises:
            JobError: every mistake of the study, or every contradiction in it, with key, line, value and remedy.
        """
        document = parse_study(text, source)
        study = check_model(document, Study, error=JobError)
        try:
            method = load_method(study.method.model_dump(), allowed)
        except JobError as error:
            raise refusal(JobError, source, [Mistake(str(error), document.line(("method",)))]) from error
        job = cls(text, study, method, source, app, tuple(allowed), document.lines)
        misfits = [("sites", f"'sites': {misfit}") for misfit in method.misfits(study.sites)]
        job.refuse([*misfits, *contradictions(study)])
        return job

    @classmethod
    def of(cls, values: Mapping[str, Any], allowed: Collection[str] = ()) -> "Job":
        """Make a job from a study's values."""
        return cls.parse(dumped(dict(values)), allowed=allowed)

    def changed(self, values: Mapping[str, Any]) -> "Job":
        """The job with other values of some keys of its study."""
        return Job.parse(changed_text(self.text, values, self.source), self.source, self.allowed, self.app)

    def refuse(self, found: Iterable[tuple[str, str]]) -> None:
        """Raise one error for all that was found: the study's key at which its line is shown, and what is wrong.

        Raises:
            JobError: something was found.
        """
        if mistakes := [Mistake(text, self.lines.get((key,))) for key, text in dict.fromkeys(found)]:
            raise refusal(JobError, self.source, mistakes)

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
        study, exchange = self.study, self.method.exchange()
        args: dict[str, Any] = {"job": study.name, "method": study.method.model_dump()}
        args["sites"] = dict(sorted(study.sites.items()))
        args |= self._said(*{field.name for field in fields(Plan)} - {*args, "resume"})
        args |= {"warm_start_rounds": study.warm_start.rounds} | ({"exchange": exchange} if exchange else {})
        if study.resume:
            args |= {"resume": study.resume.job} | ({"fresh": study.resume.fresh} if study.resume.fresh else {})
        return args

    def _said(self, *keys: str) -> dict[str, Any]:
        """What the study says of these keys, where it is not the default."""
        return self.study.model_dump(exclude_defaults=True, include=set(keys))

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
        study, roles, rule = self.study, self.method.roles(), self.rule
        args: dict[str, Any] = {"sharing": study.sharing, "buffers": study.buffers}
        if any(made.receives for made in roles.values()):
            args["sharing"] = {role: made.receives or study.group(role) for role, made in roles.items()}
        if sends := {role: made.sends for role, made in roles.items() if made.sends}:
            args["sends"] = sends
        args |= {"warm_start_sharing": study.warm_start.sharing} if study.warm_start.sharing else {}
        args |= self._said("normalise", "user_weights", "max_norm", "clip_norm")
        return args | (rule["args"] if rule["path"] == MEAN else {"rule": rule})

    @property
    def model_role(self) -> str:
        """The role whose network the server has: the labelled sites', or that of the others where there are none."""
        return "supervised" if self.study.of_role("supervised") else "unsupervised"

    def _network(self, role: str) -> dict[str, Any]:
        study = self.study
        overrides = {str(name): values for name, values in study.overrides.items()}.get(role, {})
        overlays = [*study.overlays, *self.method.role(role).overlays]
        return {"bundle": study.bundle, "seed": study.seed, "overlays": overlays, "overrides": dict(overrides)}

    @property
    def persistor(self) -> dict[str, Any]:
        """Plain arguments of :class:`fedmed.recovery.model_store.ModelStore`."""
        return self._network(self.model_role) | self._said("checkpoint", "checkpoint_tensors")

    def of_role(self, role: str) -> dict[str, Any]:
        """Plain arguments of a site of this role, of :class:`fedmed.federation.client.Client`."""
        study, made = self.study, self.method.role(role)
        args = self._network(role) | {"role": role, "sharing": made.receives or study.group(role)}
        args |= {"buffers": study.buffers, "warm_start_rounds": study.warm_start.rounds}
        args |= {"sends": made.sends} if made.sends else {}
        args |= {"warm_start_sharing": study.warm_start.sharing} if study.warm_start.sharing else {}
        return args | self._said("optimizer_state")

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
            raise JobError(
                f"{self.source} has no site '{site}'; it has {known}. Name yours with --site, or ask the study lead to "
                "add it"
            )
        return self.of_role(self.study.sites[site])
