"""A job: a study with its method, as it was written, and what each of its roles receives, sends and keeps."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmed.aggregation.sharing import FULL, Patterns, SharingPolicy, is_batch_norm_buffer
from fedmed.bundles.bundle import Bundle
from fedmed.errors import JobError
from fedmed.jobs.rule_spec import rule_spec
from fedmed.jobs.study import Study
from fedmed.jobs.study_text import changed_text, dumped, parse_study
from fedmed.messages.fingerprint import NAME as FINGERPRINT
from fedmed.methods.declarations import TRAINING_ROLES, Exchanged
from fedmed.methods.find_method import adaptations, algorithms, load_algorithm, load_method
from fedmed.methods.method import ALL_SITES, MEAN, Method, at_server, of_role
from fedmed.settings.yaml_document import Mistake, Place, refusal
from fedmed.settings.yaml_model import check_model

STUDY = "study.yaml"
StudyErrors = Iterator[tuple[str, str]]  # key at which the line is shown, and a sentence that names all keys concerned


@dataclass(frozen=True)
class Job:
    """A study that contradicts neither itself nor its method: what server, sites and model are made of.

    Attributes:
        method: the object that it names, with algorithm and adaptations.
        text: the study as it was written.
        app: folder of the server's app, where the job was read from one.
        allowed: class paths outside FedMed's own rooms that this machine's settings list.
    """

    study: Study
    method: Method
    text: str
    source: str = STUDY
    app: Path | None = None
    allowed: tuple[str, ...] = ()
    lines: Mapping[Place, int] = field(default_factory=dict, repr=False)

    @classmethod
    def parse(cls, text: str, source: str = STUDY, allowed: Collection[str] = (), app: Path | None = None) -> "Job":
        """Make a job from a study's text.

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
        validation_errors = [
            ("sites", f"'sites': {validation_error}") for validation_error in method.validation_errors(study.sites)
        ]
        if study.release_from is not None and not job.keeps_private:
            why = "'release_from' asks for private layers, but all are shared; choose a partial 'sharing'"
            validation_errors.append(("release_from", why))
        job.refuse([*validation_errors, *contradictions(study), *job._of_algorithm()])
        return job

    @classmethod
    def of(cls, values: Mapping[str, Any], allowed: Collection[str] = ()) -> "Job":
        """Make a job from a study's values."""
        return cls.parse(dumped(dict(values)), allowed=allowed)

    def changed(self, values: Mapping[str, Any]) -> "Job":
        """The job with other values of some keys of its study."""
        return Job.parse(changed_text(self.text, values, self.source), self.source, self.allowed, self.app)

    def refuse(self, validation_errors: Iterable[tuple[str, str]]) -> None:
        """Raise one error for all that was found: the study's key at which its line is shown, and what is wrong.

        Raises:
            JobError: something was found.
        """
        if mistakes := [Mistake(text, self.lines.get((key,))) for key, text in dict.fromkeys(validation_errors)]:
            raise refusal(JobError, self.source, mistakes)

    def _of_algorithm(self) -> Iterator[tuple[str, str]]:
        """Yield what does not go with the study's algorithm, or is said of an algorithm in another place."""
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
            _ = self.short_rule
        except JobError as error:
            yield "algorithm", f"'algorithm': {error}"

    @cached_property
    def exchange(self) -> Exchanged:
        """Values that sites send one another before they train."""
        return self.method.exchange()

    @property
    def extras(self) -> list[str]:
        """Names of all values beside the model that the job asks for; a site lets go what its settings list."""
        with_update = self.method.with_update(needed=True)
        return sorted({*self.exchange.names, *with_update, *([FINGERPRINT] if self.study.fingerprint else [])})

    @property
    def short_rule(self) -> dict[str, Any]:
        """``path`` and ``args``, as people write them, of the method's rule, with what study and algorithm say of it.

        Raises:
            JobError: it does not go with the algorithm.
        """
        default, said, step = self.method.rule(), self.study.rule, self.study.server_step
        path, args = default["path"], dict(default["args"])
        if said is not None:
            args = {**args, **said.args} if said.path in (None, path) else dict(said.args)
            path = said.path or path
        args |= {"step": step} if path == MEAN and step is not None else {}
        return self.method.amended({"path": path, "args": args})

    @cached_property
    def rule(self) -> dict[str, Any]:
        """``path`` and ``args`` of the server's rule, down to its last part.

        Raises:
            JobError: the study's keys and the rule's arguments contradict each other.
        """
        study = self.study
        said = study.model_dump(exclude_defaults=True, include={"normalise", "user_weights", "clip_norm"})
        return rule_spec(self.short_rule, said, at_server(study.buffers), study.server_step)

    def group(self, role: str) -> str:
        """Sharing group of what a role receives."""
        return self.method.role(role).receives or self.study.group(role)

    def buffers(self, role: str) -> str:
        """Treatment of a role's BatchNorm statistics: ``average``, ``pooled`` or ``local``."""
        return of_role(self.study.buffers, role)

    @property
    def all_shared(self) -> bool:
        """True where every role gets every layer."""
        return {self.group(role) for role in self.study.sites.values()} == {FULL}

    @property
    def keeps_private(self) -> bool:
        """True where some tensors stay at the labelled sites."""
        received = any(made.receives for made in self.method.roles().values())
        return received or self.study.sharing != FULL or self.buffers("supervised") == "local"

    @property
    def model_role(self) -> str:
        """The role whose network the server has: the labelled sites', or that of the others where there are none."""
        return "supervised" if self.study.of_role("supervised") else "unsupervised"

    def overlays(self, role: str) -> list[str]:
        """Overlays of a role: the study's, its own, and the method's last."""
        of_role = {str(name): overlays for name, overlays in self.study.role_overlays.items()}.get(role, [])
        return [*self.study.overlays, *of_role, *self.method.role(role).overlays]

    def overrides(self, role: str) -> dict[str, Any]:
        """Plain values of a role for settings that the bundle lists as overridable."""
        said = {str(name): values for name, values in self.study.overrides.items()}.get(role, {})
        classes = {"classes": [one.name for one in self.study.structures]} if self.study.classes else {}
        return {**self.method.settings(role), **said, **classes}

    def bundle(self, role: str, site_bundles: Path | None = None) -> Bundle:
        """The bundle as a role has it.

        Raises:
            BundleError: it is not installed, or lacks an overlay or a setting.
        """
        return Bundle(self.study.bundle, self.overlays(role), self.overrides(role), site_bundles)

    @property
    def name(self) -> str:
        """The job's name."""
        return self.study.name

    @property
    def recorded(self) -> dict[str, Any]:
        """Plain values of the study for a run's record: those that are not the default."""
        return self.study.model_dump(mode="json", exclude_defaults=True)

    @cached_property
    def digest(self) -> str:
        """Hash of the study's text, equal at server and sites."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def role(self, site: str) -> str:
        """The role that the study gives a site.

        Raises:
            JobError: the study has no such site.
        """
        if site not in self.study.sites:
            known = ", ".join(sorted(self.study.sites))
            raise JobError(
                f"{self.source} has no site '{site}'; it has {known}. Name yours with --site, or ask the study lead to "
                "add it"
            )
        return self.study.sites[site]


def contradictions(study: Study) -> StudyErrors:
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


def _of_sites(study: Study) -> StudyErrors:
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


def _of_classes(study: Study) -> StudyErrors:
    names = [one.name for one in study.structures]
    if twice := [name for name in names if names.count(name) > 1]:
        yield "classes", f"'classes' names '{twice[0]}' twice; leave one of them out"
    for role, values in study.overrides.items():
        if said := values.get("classes"):
            shown = ", ".join(map(str, said)) if isinstance(said, list) else str(said)
            yield "overrides", f"'overrides.{role}.classes': classes are the whole study's; write 'classes: [{shown}]'"


def _of_result(study: Study) -> StudyErrors:
    """Contradictions about which model is the result, and how it is tested."""
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
    if study.gain and not (study.evaluate and labelled):
        lacks = "'evaluate': true" if labelled else "a site that is 'supervised': only with labels can it train alone"
        yield "gain", f"'gain' needs {lacks}; {'set it' if labelled else 'add one'}, or leave 'gain' out"
    if study.patience is not None and study.select != "best":
        yield "patience", "'patience' waits for better scores, which only 'select': 'best' asks for; leave it out"
    yield from _of_mean(study)
    yield from _of_release(study, labelled)


def _of_mean(study: Study) -> StudyErrors:
    if study.select != "mean":
        if "mean_rounds" in study.model_fields_set:
            yield "mean_rounds", "'mean_rounds' is for 'select': 'mean'; set that, or leave 'mean_rounds' out"
    elif study.mean_rounds > (there := study.rounds - study.warm_start.rounds):
        after = " after the warm start" if study.warm_start.rounds else ""
        left = "is 1 round" if there == 1 else f"are {there} rounds"
        remedy = "lower it" if there > 1 else "add rounds, or write 'select: best'"
        yield "mean_rounds", f"'mean_rounds' is {study.mean_rounds}, but there {left}{after}; {remedy}"


def _of_release(study: Study, labelled: list[str]) -> StudyErrors:
    said, known = study.release_from, ", ".join(labelled)
    if said == ALL_SITES and ALL_SITES in study.sites:
        yield "release_from", f"'release_from' is '{ALL_SITES}', which is a site of the study too; call that otherwise"
    elif said == ALL_SITES and not labelled:
        yield ("release_from", f"'release_from' is '{ALL_SITES}', but no site is 'supervised', and others have none")
    elif said is not None and said != ALL_SITES and said not in labelled:
        yield "release_from", f"'release_from' is '{said}'; it must be a supervised site: {known}"
    changed = study.model_fields_set & {"release_weights", "release_partial", "release_keep"}
    for key in sorted(changed) if said != ALL_SITES else ():
        yield key, f"'{key}' is for the mean of all sites: set 'release_from' to '{ALL_SITES}', or leave it out"
    if study.release_keep and not study.evaluate:
        yield ("release_keep", "'release_keep' needs 'evaluate': true, without which nobody is asked; set it")


def _of_length(study: Study) -> StudyErrors:
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


class RolePolicies:
    """The sharing policies of a job's roles, before and after the warm start, for one network.

    In the warm start ``warm_start.sharing`` applies, if the study says it: with ``full`` the layers that become private
    later are trained together first, so that sites without labels start from a trained model.
    """

    def __init__(self, job: Job, names: Collection[str], groups: Mapping[str, Sequence[str]]) -> None:
        self.job, self.names, self.groups = job, names if isinstance(names, Mapping) else list(names), groups
        self._policies: dict[tuple[str, bool], SharingPolicy] = {}

    def check(self) -> None:
        """Ask for the policy of every role that the job has.

        Raises:
            SharingError: as :meth:`SharingPolicy.from_groups`.
        """
        for role in set(self.job.study.sites.values()):
            self.of(role, 0)
            self.of(role, self.job.study.rounds)

    def _warm(self, round: int) -> bool:
        return max(round, 0) < self.job.study.warm_start.rounds  # -1 is the starting model

    def _group(self, role: str, warm: bool) -> str:
        return (self.job.study.warm_start.sharing if warm else None) or self.job.group(role)

    def of(self, role: str, round: int) -> SharingPolicy:
        """The policy of a role in a round, counted from 0."""
        key = role, self._warm(round)
        if key not in self._policies:
            kept, sends = self.job.buffers(role), self.job.method.role(role).sends
            self._policies[key] = SharingPolicy.from_groups(self.names, self._group(*key), self.groups, kept, sends)
        return self._policies[key]

    def borrowed(self, role: str, round: int, trained: bool) -> list[str]:
        """Private names that a site of this role must borrow to be scored.

        One that ``trained`` uses its own BatchNorm statistics of shared layers, which ``buffers: local`` keeps private.
        """
        layers = Patterns(self.groups.get(self._group(role, self._warm(round)), []))
        return layers.select(self.names) if trained else self.of(role, round).private(self.names)

    def released_statistics(self, role: str, round: int) -> list[str]:
        """BatchNorm statistics that a role keeps to itself and labelled sites share: what a site begins with, and is
        scored with as long as it has none of its own.
        """
        shared = set(filter(is_batch_norm_buffer, self.of("supervised", round).sent(self.names)))
        return [name for name in self.of(role, round).private(self.names) if name in shared]

    def scorable(self, role: str, round: int) -> bool:
        """Tell whether a site of this role holds every tensor it needs to be scored.

        A site without labels never trains a private decoder against truth, and a site that never trains has no
        private tensors at all; private BatchNorm statistics alone are no obstacle for a site that trains.
        """
        private = self.of(role, round).private(self.names)
        only_buffers = all(is_batch_norm_buffer(name) for name in private)
        return not private or role == "supervised" or (role == "unsupervised" and only_buffers)
