"""A job: a study with its method, as it was written."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmed.aggregation.sharing import FULL
from fedmed.errors import JobError
from fedmed.jobs.plan import TRAINING_ROLES, Plan
from fedmed.jobs.study import Study
from fedmed.jobs.study_text import changed_text, dumped, parse_study
from fedmed.methods.find_method import adaptations, algorithms, load_algorithm, load_method
from fedmed.methods.method import MEAN, Method
from fedmed.methods.private_group import ALL_SITES, of_role
from fedmed.settings.yaml_document import Mistake, Place, refusal
from fedmed.settings.yaml_model import check_model

STUDY = "study.yaml"
Found = Iterator[tuple[str, str]]  # key at which the line is shown, and a sentence that names all keys concerned


@dataclass(frozen=True)
class JobArguments:
    """Plain arguments of the parts of a run; what has its default is left out.

    Attributes:
        study: the study, checked.
        method: the object that it names.
    """

    study: Study
    method: Method

    @cached_property
    def plan(self) -> Plan:
        """Who takes part in which round."""
        return Plan(**self.controller)

    @property
    def controller(self) -> dict[str, Any]:
        """Plain arguments of :class:`fedmed.jobs.plan.Plan`."""
        study, exchange = self.study, self.method.exchange()
        args: dict[str, Any] = {"job": study.name, "method": study.method_spec}
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
        """``path`` and ``args`` of the server's rule."""
        return self.method.amended(self.asked_rule)

    @property
    def asked_rule(self) -> dict[str, Any]:
        """The method's, as far as the study does not say otherwise."""
        own, said, step = self.method.rule(), self.study.rule, self.study.server_step
        path, args = own["path"], dict(own["args"])
        if said is not None:
            args = {**args, **said.args} if said.path in (None, path) else dict(said.args)
            path = said.path or path
        return {"path": path, "args": args | ({"step": step} if path == MEAN and step is not None else {})}

    @property
    def aggregator(self) -> dict[str, Any]:
        """What the server aggregates by: class path and arguments of the rule, and what each role shares."""
        study, roles, rule = self.study, self.method.roles(), self.rule
        args: dict[str, Any] = {"sharing": study.sharing, "buffers": study.buffers}
        if any(made.receives for made in roles.values()):
            groups = {role: made.receives or study.group(role) for role, made in roles.items()}
            args["sharing"] = groups if len(set(groups.values())) > 1 else min(groups.values())
        if sends := {role: made.sends for role, made in roles.items() if made.sends}:
            args["sends"] = sends
        args |= {"warm_start_sharing": study.warm_start.sharing} if study.warm_start.sharing else {}
        args |= self._said("normalise", "user_weights", "max_norm", "clip_norm")
        args |= {} if study.server_step is None else {"step": study.server_step}
        return args | (rule["args"] if rule["path"] == MEAN else {"rule": rule})

    @property
    def keeps_private(self) -> bool:
        """Whether some tensors stay at the labelled sites."""
        received = any(made.receives for made in self.method.roles().values())
        return received or self.study.sharing != FULL or of_role(self.study.buffers, "supervised") == "local"

    @property
    def model_role(self) -> str:
        """The role whose network the server has: the labelled sites', or that of the others where there are none."""
        return "supervised" if self.study.of_role("supervised") else "unsupervised"

    def _network(self, role: str) -> dict[str, Any]:
        study = self.study
        overrides = {str(name): values for name, values in study.overrides.items()}.get(role, {})
        overrides = {**self.method.settings(role), **overrides}
        overrides |= {"classes": [one.name for one in study.structures]} if study.classes else {}
        of_role = {str(name): overlays for name, overlays in study.role_overlays.items()}.get(role, [])
        overlays = [*study.overlays, *of_role, *self.method.role(role).overlays]
        return {"bundle": study.bundle, "seed": study.seed, "overlays": overlays, "overrides": overrides}

    @property
    def persistor(self) -> dict[str, Any]:
        """Plain arguments of :class:`fedmed.recovery.model_store.ModelStore`."""
        args = self._network(self.model_role) | self._said("checkpoint", "checkpoint_tensors", "encoder")
        return args | ({"classes": [one.facts() for one in self.study.structures]} if self.study.classes else {})

    def of_role(self, role: str) -> dict[str, Any]:
        """Plain arguments of a site of this role, of :class:`fedmed.federation.client.Client`."""
        study, made = self.study, self.method.role(role)
        args = self._network(role) | {"role": role, "sharing": made.receives or study.group(role)}
        args |= {"buffers": of_role(study.buffers, role), "warm_start_rounds": study.warm_start.rounds}
        args |= {"sends": made.sends} if made.sends else {}
        args |= {"warm_start_sharing": study.warm_start.sharing} if study.warm_start.sharing else {}
        return args | self._said("optimizer_state")

    @property
    def clients(self) -> dict[str, dict[str, Any]]:
        """Site -> its plain arguments."""
        return {site: self.of_role(role) for site, role in sorted(self.study.sites.items())}


@dataclass(frozen=True)
class Job(JobArguments):
    """A study that contradicts neither itself nor its method.

    Attributes:
        text: the study as it was written.
        source: file of the study, for messages.
        app: folder of the server's app, where the job was read from one.
        allowed: class paths outside FedMed's own rooms that this machine's settings list.
        lines: of the study's keys, for messages.
    """

    text: str
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
        key = "algorithm"
        try:
            if chosen := study.method_spec.get(key):
                load_algorithm(chosen, allowed)
            key = "adaptation"
            for chosen in study.method_spec.get(key, ()):
                load_algorithm(chosen, allowed, key)
            key = "method"
            method = load_method(study.method_spec, allowed)
        except JobError as error:
            raise refusal(JobError, source, [Mistake(str(error), document.line((key,)))]) from error
        job = cls(study, method, text, source, app, tuple(allowed), document.lines)
        misfits = [("sites", f"'sites': {misfit}") for misfit in method.misfits(study.sites)]
        if study.release_from is not None and not job.keeps_private:
            told = "'release_from' asks for private layers, but all are shared; choose a partial 'sharing'"
            misfits.append(("release_from", told))
        job.refuse([*misfits, *contradictions(study), *job._of_algorithm()])
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

    def _of_algorithm(self) -> Iterator[tuple[str, str]]:
        """What the study says that does not go with its algorithm, or of an algorithm in another place."""
        study, spec = self.study, self.study.method_spec
        chosen = {one.get("name") for one in (spec.get("algorithm", {}), *spec.get("adaptation", ()))}
        listed = {*study.overlays, *(overlay for more in study.role_overlays.values() for overlay in more)}
        both = [*(("algorithm", *one) for one in algorithms().items()),
                *(("adaptation", *one) for one in adaptations().items())]  # fmt: skip
        for key, name, kind in both:
            if kind.overlay in listed and (kind.at_server or kind().values()):
                yield "overlays", f"overlay '{kind.overlay}' alone lacks the server's part: write '{key}: {name}'"
            elif kind.overlay in listed and name in chosen:
                yield "overlays", f"overlay '{kind.overlay}' is what '{key}: {name}' adds; leave one of them out"
        yield from self.method.contradictions(study.model_dump(exclude_defaults=True))
        try:
            self.method.amended(self.asked_rule)
        except JobError as error:
            yield "algorithm", f"'algorithm': {error}"

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


def contradictions(study: Study) -> Found:
    """Every contradiction of a study with itself."""
    yield from _of_sites(study)
    yield from _of_classes(study)
    yield from _of_result(study)
    yield from _of_length(study)
    if not isinstance(study.buffers, str) and {"average", "pooled"} <= {*study.buffers.values()}:
        yield "buffers", "'buffers' has 'average' and 'pooled'; the server does one of them with all that it is sent"
    if study.checkpoint_tensors and not study.checkpoint:
        yield "checkpoint_tensors", "'checkpoint_tensors' says what is taken from a 'checkpoint'; name that too"
    if study.encoder and study.checkpoint:
        yield "encoder", "'encoder' and 'checkpoint' both say where the model starts from; leave one of them out"
    if study.server_step is not None and study.rule and "step" in study.rule.args:
        yield (
            "server_step",
            "'server_step' and 'rule.args.step' both name the server's optimizer; leave one of them out",
        )
    if study.clip_norm and study.max_norm is not None and study.clip_norm >= study.max_norm:
        bound = f"'max_norm' refuses from {study.max_norm:g} on"
        yield "clip_norm", f"'clip_norm' {study.clip_norm:g} never acts: {bound}; lower it"


def _of_sites(study: Study) -> Found:
    training = study.of_role(*TRAINING_ROLES)
    if not training:
        yield "sites", "'sites': none trains; at least one must be 'supervised' or 'unsupervised'"
    if study.min_clients is not None and study.min_clients > len(training):
        yield "min_clients", f"'min_clients' is {study.min_clients}; the job has {len(training)} training sites"
    if unknown := sorted(set(study.user_weights) - set(study.sites)):
        known = ", ".join(sorted(study.sites))
        yield "user_weights", f"'user_weights' is for '{unknown[0]}', which is not one of the sites: {known}"
    if study.resume and (lost := [site for site in study.resume.fresh if site not in training]):
        yield "resume", f"'resume.fresh' names '{lost[0]}', which does not train in this job; correct or remove it"


def _of_classes(study: Study) -> Found:
    names = [one.name for one in study.structures]
    if twice := [name for name in names if names.count(name) > 1]:
        yield "classes", f"'classes' names '{twice[0]}' twice; leave one of them out"
    for role, values in study.overrides.items():
        if said := values.get("classes"):
            shown = ", ".join(map(str, said)) if isinstance(said, list) else str(said)
            yield "overrides", f"'overrides.{role}.classes': classes are the whole study's; write 'classes: [{shown}]'"


def _of_result(study: Study) -> Found:
    """Which model is the result, and how it is tested."""
    labelled = study.of_role("supervised")
    if not labelled and study.select != "last":
        use = "choose" if study.select == "best" else "score it"
        yield (
            "select",
            f"'select' is '{study.select}', but no site is 'supervised', by whose labels to {use}; use 'last'",
        )
    if study.evaluate_last and (study.select == "last" or not study.evaluate):
        needs = "'select': 'best' or 'mean', and 'evaluate': true"
        yield "evaluate_last", f"'evaluate_last' needs {needs}; set them, or leave it out"
    if study.evaluate_first and not study.evaluate:
        yield "evaluate_first", "'evaluate_first' needs 'evaluate': true; set it, or leave 'evaluate_first' out"
    if study.patience is not None and study.select != "best":
        yield "patience", "'patience' waits for better scores, which only 'select': 'best' asks for; leave it out"
    yield from _of_mean(study)
    yield from _of_release(study, labelled)


def _of_mean(study: Study) -> Found:
    if study.select != "mean":
        if "mean_rounds" in study.model_fields_set:
            yield "mean_rounds", "'mean_rounds' is for 'select': 'mean'; set that, or leave 'mean_rounds' out"
    elif study.mean_rounds > (there := study.rounds - study.warm_start.rounds):
        after = " after the warm start" if study.warm_start.rounds else ""
        yield "mean_rounds", f"'mean_rounds' is {study.mean_rounds}, but there are {there} rounds{after}; lower it"


def _of_release(study: Study, labelled: list[str]) -> Found:
    said, known = study.release_from, ", ".join(labelled)
    if said == ALL_SITES and ALL_SITES in study.sites:
        yield "release_from", f"'release_from' is '{ALL_SITES}', which is a site of the study too; call that otherwise"
    elif said == ALL_SITES and not labelled:
        yield (
            "release_from",
            f"'release_from' is '{ALL_SITES}', but no site is 'supervised', and others have none",
        )
    elif said is not None and said != ALL_SITES and said not in labelled:
        yield "release_from", f"'release_from' is '{said}'; it must be a supervised site: {known}"
    changed = study.model_fields_set & {"release_weights", "release_partial", "release_keep"}
    for key in sorted(changed) if said != ALL_SITES else ():
        yield key, f"'{key}' is for the mean of all sites: set 'release_from' to '{ALL_SITES}', or leave it out"
    if study.release_keep and not study.evaluate:
        yield (
            "release_keep",
            "'release_keep' needs 'evaluate': true, without which nobody is asked; set it",
        )


def _of_length(study: Study) -> Found:
    rounds, warm = study.rounds, study.warm_start.rounds
    if (study.steps is None) == (study.epochs is None):
        yield "steps" if study.steps else "rounds", "give either 'steps' or 'epochs', the length of a round at a site"
    if warm > rounds:
        yield "warm_start", f"'warm_start.rounds' is {warm}; it must lie in 0…{rounds}"
    if warm and not study.of_role("supervised"):
        yield "warm_start", "'warm_start.rounds' must be 0: no site is 'supervised', and nobody else trains in them"
    if study.min_rounds > rounds:
        yield "min_rounds", f"'min_rounds' is {study.min_rounds}; it must lie in 0…{rounds}"
    if study.min_rounds and study.patience is None:
        yield "min_rounds", "'min_rounds' is for a run that may end early; give 'patience' too, or leave it out"
