"""Answers that a site would send in a job, as its own limits allow. No image is read, no file is written."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from fedmed.aggregation.sharing import tensor_bytes
from fedmed.bundles.bundle_parser import initial_network, named_tensors
from fedmed.errors import PrivacyError
from fedmed.jobs.job import Job, RolePolicies
from fedmed.kinds.find_kind import kind_of
from fedmed.messages.fingerprint import FORM
from fedmed.messages.fingerprint import NAME as FINGERPRINT
from fedmed.methods.control_kinds import is_control
from fedmed.methods.declarations import TRAINING_ROLES
from fedmed.privacy.allow_lists import Allowed
from fedmed.privacy.payload import describe
from fedmed.settings.site import SiteConfig

GAINED = ["gain", "gain_low", "gain_high", "gain_error", "gain_p", "gain_patients", "gain_better"]
TRAINED = ["n_samples", "seconds", "train_loss", "train_…"]  # the last: further means of the method over a round


@dataclass(frozen=True)
class Disclosure:
    """Answers of one kind.

    Attributes:
        task: ``fingerprint``, ``metadata``, ``train``, ``validate``, ``release`` or ``evaluate``.
        rounds: first and last round, counted from 0; None for what comes after training.
        tensors: name -> dtype and shape.
        scalars: names of the numbers that come with each answer.
        refused: why the site's limits would hold the answers back; empty if they would pass.
        extras: names of a method's values that come with each answer and that the site allows.
    """

    task: str
    rounds: tuple[int, int] | None
    times: int
    tensors: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    scalars: Sequence[str] = ()
    refused: str = ""
    extras: Sequence[str] = ()

    @property
    def bytes(self) -> int:
        """Of one answer's tensors."""
        return sum(self.sizes.values())


class SiteDisclosures:
    """Answers of a site in a job.

    Raises:
        JobError, BundleError: the job has no such site, or the site no such bundle.
    """

    def __init__(self, job: Job, site: SiteConfig) -> None:
        self.role = job.role(site.site)
        bundle = job.bundle(self.role, site.bundles)
        network = initial_network(bundle.parser_without_site(device="cpu"), job.study.seed)
        self.site, self.study, self.exchange, self.allowed = site, job.study, job.exchange, Allowed(site)
        self.tensors, self.score, self.with_update = named_tensors(network), bundle.score, job.method.with_update()
        kind = kind_of(bundle)
        scores = (bundle.score, *kind.further_scores(bundle.score))
        also = kind.numbers([one.name for one in bundle.classes])
        self.tells = kind.tells
        self.tested = [*(metric for score in scores for metric in score.tested), *also, "n_cases"]
        self.policies = RolePolicies(job, self.tensors, bundle.groups(network))
        self.rounds = [round for round in range(job.study.rounds) if site.site in job.study.participants(round)]

    def before_training(self) -> Iterator[Disclosure]:
        """Fingerprint, and values for the other sites, of a size that only the bundle's method knows."""
        if self.study.fingerprint:
            sent = self._in_rounds(FINGERPRINT, [0], [], [], [FINGERPRINT])
            yield replace(sent, scalars=list(FORM) if sent.extras else ())
        rounds = [round for round in self.rounds if self.exchange.in_round(round)]
        if rounds and self.exchange.sends(self.role):
            yield self._in_rounds("metadata", rounds, [], [], self.exchange.names)

    def training(self) -> Iterator[Disclosure]:
        """Updates: one entry for every run of rounds that send the same."""
        validates = self.study.select == "best" and self.role == "supervised"
        noised = self.site.privacy.noise_multiplier is not None
        scalars = [*TRAINED, *([self.score.validation] if validates else [])]
        scalars += self.allowed.protection(0.0 if noised else None)
        for names, rounds in groupby(self.rounds, lambda round: self.policies.of(self.role, round).sent(self.tensors)):
            yield self._in_rounds("train", list(rounds), names, scalars, self.with_update)

    def closing(self) -> Iterator[Disclosure]:
        """Scores, and private layers that are released for the tests."""
        study, trained = self.study, 1 + self.study.evaluate_last  # models with layers of its own that can be released
        if self.role == "supervised" and study.select == "best":
            yield self._sending("validate", 1, [], [self.score.validation])
        if not study.evaluate:
            return
        if self.role in TRAINING_ROLES and self.site.site in study.releasing_sites:
            private = self.policies.of(self.role, study.rounds - 1).private(self.tensors)
            release = self._sending("release", trained, private, [])
            yield release if self.site.allow_release else replace(release, refused="'allow_release' is not true")
        choosing = study.of_role("supervised") if study.select == "best" else []
        # Its own best model is tested too.
        tests_own_best = self.site.site in choosing and len(choosing) > 1 and not is_control(study.name)
        scalars = [*self.tested, *(["model_round"] if tests_own_best else [])]
        tests_released = study.gain and self.role == "supervised" and study.release_from not in (None, self.site.site)
        times = trained + study.evaluate_first + tests_own_best + tests_released
        yield self._sending("evaluate", times, [], scalars)
        if study.gain and self.role == "supervised" and self.site.train_alone:
            yield self._sending("evaluate", 1, [], [*self.tested, *GAINED])

    def _in_rounds(
        self, task: str, rounds: list[int], names: Collection[str], scalars: list[str], extras: Sequence[str]
    ) -> Disclosure:
        allowed = [name for name in extras if name in self.site.privacy.allowed_extras]
        sending = self._sending(task, len(rounds), names, scalars)
        return replace(sending, rounds=(rounds[0], rounds[-1]), extras=allowed)

    def _sending(self, task: str, times: int, names: Collection[str], scalars: list[str]) -> Disclosure:
        tensors, listed = {name: self.tensors[name] for name in names}, self.site.privacy.allowed_metrics
        if listed is not None:
            scalars = [name for name in listed if name in scalars or (task == "train" and name.startswith("train_"))]
        sizes, refused = {name: tensor_bytes({name: tensor}) for name, tensor in tensors.items()}, ""
        try:  # the site's own gate, asked with tensors of the right names and shapes
            (self.allowed.check_release if task == "release" else self.allowed.check_update)(tensors)
            self.allowed.check_size(sum(sizes.values()))
        except PrivacyError as error:
            refused = str(error)
        return Disclosure(task, None, times, describe(tensors), sizes, scalars, refused)
