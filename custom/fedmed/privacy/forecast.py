"""What a site would send in a job, before it takes part. No image is read, no file is written."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from monai.bundle import ConfigParser
from torch import Tensor

from fedmed.aggregation.sharing import SharingPolicy, tensor_bytes
from fedmed.bundles.load import Bundle
from fedmed.bundles.network import initial_network, named_tensors
from fedmed.bundles.score import Score
from fedmed.errors import JobError, PrivacyError
from fedmed.jobs.job_folder import read_job
from fedmed.jobs.plan import TRAINING_ROLES, Plan
from fedmed.jobs.role_sharing import policy_of_round
from fedmed.jobs.rule_spec import SIMILARITY
from fedmed.privacy.account import PrivacyAccount
from fedmed.privacy.allow_lists import Allowed
from fedmed.privacy.ledger import describe
from fedmed.settings.site import SiteConfig

SHARING = {"sharing": "full", "buffers": "average", "warm_start_rounds": 0, "warm_start_sharing": None}
TRAINED = ["n_samples", "seconds", "train_loss", "train_…"]  # the last: further means of the method over a round


@dataclass(frozen=True)
class Sending:
    """Answers of one kind.

    Attributes:
        task: ``metadata``, ``train``, ``validate``, ``release`` or ``evaluate``.
        rounds: first and last round, counted from 0; None for what comes after training.
        times: number of answers.
        tensors: name -> dtype and shape.
        sizes: name -> bytes.
        scalars: names of the numbers that come with each answer.
        extras: names of a method's values that come with each answer and that the site allows.
        refused: why the site's limits would hold the answers back; empty if they would pass.
    """

    task: str
    rounds: tuple[int, int] | None
    times: int
    tensors: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    scalars: list[str] = field(default_factory=list)
    refused: str = ""
    extras: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        """Of one answer's tensors."""
        return sum(self.sizes.values())


@dataclass(frozen=True)
class Forecast:
    """Everything that a site would send in a job.

    Attributes:
        job, bundle, role: what the site would work on, and as what.
        site: its settings.
        sendings: in the order of the job; only as many updates as the account allows.
        private: name -> dtype and shape of tensors that no training round sends.
        asked: updates that the job asks for, and that the site's lists let pass.
        epsilon: of the site's account now and after the job, None without noise.
        wanted: names of a method's values that the job asks for, allowed or not.
    """

    job: str
    bundle: str
    role: str
    site: SiteConfig
    sendings: list[Sending]
    private: Mapping[str, str]
    asked: int
    epsilon: tuple[float, float] | None
    wanted: list[str] = field(default_factory=list)

    @property
    def updates(self) -> int:
        """Updates that would leave."""
        return sum(s.times for s in self.sendings if s.task == "train" and not s.refused)

    @property
    def bytes(self) -> int:
        """Of all tensors that would leave."""
        return sum(s.times * s.bytes for s in self.sendings if not s.refused)


def forecast(folder: Path, site: SiteConfig) -> Forecast:
    """Work out what ``site`` would send in the job in ``folder``.

    Raises:
        JobError, BundleError: the job cannot be read, or has no such site.
        PrivacyError: the site's account is damaged.
    """
    job = read_job(folder)
    if site.site not in job.clients:
        known = ", ".join(sorted(job.clients))
        raise JobError(f"{folder}: the job has no site '{site.site}'; it has {known}. Name yours with --site")
    args, plan, allowed = job.clients[site.site], Plan(**job.controller), Allowed(site)
    bundle = Bundle(args["bundle"], args.get("overlays") or (), args.get("overrides"), site.bundles)
    parser = bundle.parser(device="cpu")
    network = initial_network(parser, args.get("seed", 0))
    own, groups = named_tensors(network), bundle.groups(network)
    settings = {key: args.get(key, default) for key, default in SHARING.items()}
    policies = [policy_of_round(own, groups, round, **settings) for round in range(plan.rounds)]
    needed = [SIMILARITY] if job.aggregator.get("weighting") == "self_adaptive" else []
    extras = [SIMILARITY] if needed or _measures_change(parser) else []
    training = list(_training(plan, site.site, policies, own, allowed, bundle.score, extras))
    asked = sum(sending.times for sending in training if not sending.refused)
    training, epsilon = _within_account(training, asked, PrivacyAccount(site.privacy))
    sent = {name for sending in training for name in sending.tensors}
    private = describe({name: tensor for name, tensor in own.items() if name not in sent})
    metadata = list(_metadata(plan, site))
    sendings = [*metadata, *training, *_closing(plan, args["role"], policies, own, allowed, bundle.score)]
    wanted = needed * bool(training) + list(plan.exchange["names"] if plan.exchange and metadata else [])
    return Forecast(job.name, bundle.name, args["role"], site, sendings, private, asked, epsilon, wanted)


def _measures_change(parser: ConfigParser) -> bool:
    """Whether the engine looks at probe images: then it tells how much a round has changed, whatever weighs sites."""
    return "train#trainer#probe_loader" in parser and parser["train#trainer#probe_loader"] is not None


def _metadata(plan: Plan, site: SiteConfig) -> Iterator[Sending]:
    """What the site would send for the others, of a size that only the bundle's method knows."""
    rounds = [r for r in range(plan.rounds) if plan.exchanges(r) and site.site in plan.participants(r)]
    if plan.exchange and rounds:
        extras = _allowed_extras(plan.exchange["names"], site)
        yield Sending("metadata", (rounds[0], rounds[-1]), len(rounds), {}, {}, [], extras=extras)


def _allowed_extras(names: Sequence[str], site: SiteConfig) -> list[str]:
    return [name for name in names if name in site.privacy.allowed_extras]


def _training(
    plan: Plan,
    site: str,
    policies: list[SharingPolicy],
    own: Mapping[str, Tensor],
    allowed: Allowed,
    score: Score,
    extras: list[str],
) -> Iterator[Sending]:
    """One entry for every run of rounds that send the same."""
    rounds = [round for round in range(plan.rounds) if site in plan.participants(round)]
    validates = plan.select == "best" and site in plan.of_role("supervised")
    scalars = [*TRAINED, *([score.validation] if validates else [])]
    while rounds:
        names = policies[rounds[0]].sent(own)
        alike = next((i for i, round in enumerate(rounds) if policies[round].sent(own) != names), len(rounds))
        where = (rounds[0], rounds[alike - 1])
        known = [*scalars, *allowed.protection(0.0 if allowed.privacy.noise_multiplier else None)]
        sending = _sending("train", where, alike, {name: own[name] for name in names}, known, allowed)
        yield replace(sending, extras=_allowed_extras(extras, allowed.site))
        rounds = rounds[alike:]


def _closing(
    plan: Plan, role: str, policies: list[SharingPolicy], own: Mapping[str, Tensor], allowed: Allowed, score: Score
) -> Iterator[Sending]:
    tests = 2 if plan.evaluate_last else 1
    if role == "supervised" and plan.select == "best":
        yield _sending("validate", None, 1, {}, [score.validation], allowed)
    if not plan.evaluate:
        return
    if role in TRAINING_ROLES and allowed.site.site == plan.release_from:
        tensors = {name: own[name] for name in policies[-1].private(own)}
        asked = _sending("release", None, tests, tensors, [], allowed)
        yield asked if allowed.site.allow_release else replace(asked, refused="'allow_release' is not true")
    yield _sending("evaluate", None, tests, {}, [*score.tested, "n_cases"], allowed)


def _sending(
    task: str,
    rounds: tuple[int, int] | None,
    times: int,
    tensors: Mapping[str, Tensor],
    scalars: list[str],
    allowed: Allowed,
) -> Sending:
    listed = allowed.privacy.allowed_metrics
    if listed is not None:
        scalars = [name for name in listed if name in scalars or (task == "train" and name.startswith("train_"))]
    sizes, refused = {name: tensor_bytes({name: tensor}) for name, tensor in tensors.items()}, ""
    try:  # the site's own gate, asked with tensors of the right names and shapes
        (allowed.check_release if task == "release" else allowed.check_update)(tensors)
        allowed.check_size(sum(sizes.values()))
    except PrivacyError as error:
        refused = str(error)
    return Sending(task, rounds, times, describe(tensors), sizes, scalars, refused)


def _within_account(
    training: list[Sending], asked: int, account: PrivacyAccount
) -> tuple[list[Sending], tuple[float, float] | None]:
    """Cut the updates to those that the account allows."""
    if account.privacy.noise_multiplier is None:
        return training, None
    most, left, kept = account.privacy.max_epsilon, asked, []
    if most is not None:
        left = next((n for n in range(asked) if account.epsilon(n + 1) > most), asked)
    after = account.epsilon(left)
    for sending in training:
        if sending.refused:
            kept.append(sending)
        elif left and sending.rounds:
            first, last = sending.rounds
            times = min(sending.times, left)
            kept.append(replace(sending, times=times, rounds=(first, min(last, first + times - 1))))
            left -= times
    return kept, (account.epsilon(), after)
