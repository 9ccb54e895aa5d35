"""What a site would send in a job, before it takes part."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedmed.jobs.job_folder import read_job
from fedmed.jobs.plan import Plan
from fedmed.methods.lent_layers import ALL_SITES
from fedmed.methods.method import Method
from fedmed.privacy.account import PrivacyAccount
from fedmed.privacy.payload import describe
from fedmed.privacy.sendings import Sending, SiteAnswers
from fedmed.settings.site import SiteConfig


@dataclass(frozen=True)
class Forecast:
    """Everything that a site would send in a job.

    Attributes:
        job, role: what the site would work on, and as what.
        method: of the job.
        site: its settings.
        sendings: in the order of the job; only as many updates as the account allows.
        private: name -> dtype and shape of tensors that no training round sends.
        asked: updates that the job asks for, and that the site's lists let pass.
        epsilon: of the site's account now and after the job, None without noise.
        wanted: names of a method's values that the job asks for, allowed or not.
        released: what becomes of private layers that the site would release; empty where it releases none.
        tells: what the numbers of a test say about a site, beyond the scores; see :class:`fedmed.kinds.kind.Kind`.
    """

    job: str
    role: str
    method: Method
    site: SiteConfig
    sendings: Sequence[Sending]
    private: Mapping[str, str]
    asked: int
    epsilon: tuple[float, float] | None
    wanted: Sequence[str] = ()
    tells: str = ""
    released: str = ""

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
    job = read_job(folder, site.allowed_classes)
    answers = SiteAnswers(job, site)
    before, training = list(answers.before_training()), list(answers.training())
    asked = sum(sending.times for sending in training if not sending.refused)
    training, epsilon = _within_account(training, asked, PrivacyAccount(site.privacy))
    sent = {name for sending in training for name in sending.tensors}
    private = describe({name: tensor for name, tensor in answers.tensors.items() if name not in sent})
    wanted = job.method.with_update(needed=True) if training else []
    wanted += job.plan.exchange["names"] if job.plan.exchange and before else []
    sendings = [*before, *training, *answers.closing()]
    given = (job.name, answers.role, job.method, site, sendings, private, asked, epsilon, wanted)
    tells = answers.tells if any(one.task == "evaluate" and one.scalars for one in sendings) else ""
    releases = any(one.task == "release" and not one.refused for one in sendings)
    return Forecast(*given, tells, _released(job.plan, site) if releases else "")


def _released(plan: Plan, site: SiteConfig) -> str:
    """What becomes of the private layers."""
    if plan.release_from != ALL_SITES:
        return "The private layers go to the server after training, and on to sites without any until these are scored."
    text = "The private layers go to the server after training, and the mean of all sites' to sites without any"
    if not plan.release_keep:
        return f"{text} until these are scored."
    kept = "allows that" if site.allow_kept_release else "does not allow that ('allow_kept_release'): it is not kept"
    return f"{text}. The job would keep the mean for the model of a site that never trained; this site {kept}."


def _within_account(
    training: list[Sending], asked: int, account: PrivacyAccount
) -> tuple[list[Sending], tuple[float, float] | None]:
    """Cut the updates to those that the account allows."""
    if account.privacy.noise_multiplier is None:
        return training, None
    most, left, sent = account.privacy.max_epsilon, asked, []
    if most is not None:
        left = next((n for n in range(asked) if account.epsilon(n + 1) > most), asked)
    after = account.epsilon(left)
    for sending in training:
        if sending.refused:
            sent.append(sending)
        elif left and sending.rounds:
            first, last = sending.rounds
            times = min(sending.times, left)
            sent.append(replace(sending, times=times, rounds=(first, min(last, first + times - 1))))
            left -= times
    return sent, (account.epsilon(), after)
