"""A job: a study with its method, as it was written."""

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from fedmed.errors import JobError
from fedmed.jobs.contradictions import contradictions
from fedmed.jobs.job_arguments import JobArguments
from fedmed.jobs.study import Study
from fedmed.jobs.study_text import changed_text, dumped, parse_study
from fedmed.methods.find_method import adaptations, algorithms, load_algorithm, load_method
from fedmed.settings.yaml_document import Mistake, Place, refusal
from fedmed.settings.yaml_model import check_model

STUDY = "study.yaml"


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
