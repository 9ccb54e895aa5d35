"""Page of what a site would send in a job, as a data-protection officer asks for before the first round."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedmed.jobs.job_folder import read_job
from fedmed.jobs.study import Study
from fedmed.messages.fingerprint import NAME as FINGERPRINT
from fedmed.messages.fingerprint import TELLS
from fedmed.methods.declarations import FROM_A_ROUND
from fedmed.methods.method import ALL_SITES, Method
from fedmed.privacy.disclosures import Disclosure, SiteDisclosures
from fedmed.privacy.live_scalars import PROGRESS_LINES
from fedmed.privacy.payload import describe
from fedmed.privacy.protection import PrivacyAccount
from fedmed.reports.ledger_page import weak
from fedmed.reports.sheet import Sheet, SheetTable
from fedmed.reports.words import NOTHING, count, plain_delta, plain_number, size
from fedmed.settings.site import SiteConfig

KIND = "what would leave this site"
NEVER = (
    "Images, videos, masks, tables of labels, patients' names or numbers, file names, folders, results of single cases "
    "and pictures. An error at the site travels as a code; its text stays in the site's own log. Each answer is put "
    "together anew from what the limits let pass, so that nothing else can travel with it, and is written into the "
    "site's ledger before it is sent."
)
REMAINS = (
    "An update is computed from the site's images and may carry information about them: with knowledge of the model, "
    "images have been partly reconstructed from updates of other networks. Sharing fewer tensors, clipping and noise "
    "make that harder. Scores are those of a whole list; of a list with one case they are that case's. The account "
    "(ε, δ) is a bound for the site's data as a whole and for whoever sees all that the site sends. It says nothing of "
    "single patients and does not cover the numbers, which carry no noise."
)
RELEASED = (
    "never released",
    "released when a job asks",
    "released when a job asks, which may keep the mean of all sites' for an export",
)
NOISE = "Gaussian, standard deviation {:g} in every value"


@dataclass(frozen=True)
class Forecast:
    """Everything that a site would send in a job.

    Attributes:
        job, role: what the site would work on, and as what.
        disclosures: in the order of the job; only as many updates as the account allows.
        private: name -> dtype and shape of tensors that no training round sends.
        training_rounds: updates that the job asks for, and that the site's lists let pass.
        epsilon: of the site's account now and after the job, None without noise.
        wanted: names of a method's values that the job asks for, allowed or not.
        released: what becomes of private layers that the site would release; empty where it releases none.
        tells: what the numbers of a test say about a site, beyond the scores; see :class:`fedmed.kinds.kind.Kind`.
    """

    job: str
    role: str
    method: Method
    site: SiteConfig
    disclosures: Sequence[Disclosure]
    private: Mapping[str, str]
    training_rounds: int
    epsilon: tuple[float, float] | None
    wanted: Sequence[str] = ()
    tells: str = ""
    released: str = ""

    @property
    def updates(self) -> int:
        """Updates that would leave."""
        return sum(s.times for s in self.disclosures if s.task == "train" and not s.refused)

    @property
    def bytes(self) -> int:
        """Of all tensors that would leave."""
        return sum(s.times * s.bytes for s in self.disclosures if not s.refused)


def disclosure_preview(made: Forecast) -> Sheet:
    """Put a forecast on a page."""
    facts = [("role", made.role), ("updates", str(made.updates)), ("bytes in all", size(made.bytes))]
    facts += [("tensors that leave", str(len(_leaving(made)))), ("tensors that stay", str(len(_staying(made))))]
    if made.epsilon:
        facts.append(("ε now → after", " → ".join(map(plain_number, made.epsilon))))
    sent = SheetTable(
        "What each task sends", _note(made), ["task", "rounds", "times#", "tensors#", "each#", "numbers"], _rows(made)
    )
    source = f"From {made.site.source}; no job can loosen them."
    limits = SheetTable("This site's own limits", source, ["limit", "value"], limit_rows(made.site))
    leaving = SheetTable("Tensors that leave", "", ["name", "kind", "bytes#", "when"], _leaving(made), long=True)
    tables = [sent, limits, leaving]
    if values := _method_values(made):
        columns, note = ["name", "what it is", "to whom", "when", "what it tells about the site"], _asks(made)
        tables.insert(1, SheetTable("Values beside the model", note, columns, values))
    if stay := _staying(made):
        note = "They lie in the job's folder at the site."
        tables.append(SheetTable("Tensors that stay at the site", note, ["name", "kind"], stay, long=True))
    closing = [("What never leaves", [NEVER]), ("What remains", [REMAINS])]
    return Sheet(f"{made.site.site} in {made.job}", KIND, _summary(made), facts, tables, _notices(made), closing)


def _summary(made: Forecast) -> str:
    text = f"In the job {made.job} the site {made.site.site} {made.method.role(made.role).does}"
    if not made.updates:
        return f"{text}. It would send no update."
    each = size(max(s.bytes for s in made.disclosures if s.task == "train" and not s.refused))
    text += f" and would send {count(made.updates, 'update')} of at most {each}, {size(made.bytes)} in all"
    if made.epsilon is None:
        return f"{text}. No noise is added."
    spent = f"ε = {plain_number(made.epsilon[1])} at δ = {plain_delta(made.site.privacy.delta)}"
    return f"{text}, with noise: {spent} afterwards."


def _notices(made: Forecast) -> list[str]:
    refused = [sending for sending in made.disclosures if sending.refused]
    notices = [f"The site's limits hold {one.task} back ({_rounds(one)}): {one.refused}" for one in refused]
    if made.updates < made.training_rounds:
        most = f"max_epsilon {made.site.privacy.max_epsilon:g} is reached"
        notices.append(f"The account allows {made.updates} of {made.training_rounds} updates: then {most}.")
    notices += weak(made.epsilon[1]) if made.epsilon else []
    notices += [*_extras(made), *made.method.dry_run(), *filter(None, [made.tells, made.released])]
    if made.site.privacy.noise_seed is not None:
        notices.append("'noise_seed' is set: the noise can be repeated, so it protects nothing.")
    return notices


def _extras(made: Forecast) -> list[str]:
    """Notices about values beside the model: who gets them, and that no account covers them."""
    notices, privacy = [], made.site.privacy
    sent = sorted({name for sending in made.disclosures for name in sending.extras})
    if held := sorted(set(made.wanted) - set(sent)):
        notices.append(
            f"The job asks for {', '.join(held)}, which 'privacy.allowed_extras' does not list: it stays here, and the "
            "site trains all the same."
        )
    if shared := [sending for sending in made.disclosures if sending.task == "metadata" and sending.extras]:
        names, times = ", ".join(shared[0].extras), count(shared[0].times, "round")
        std = privacy.extras_noise
        noise = "" if std is None else f" Arrays get noise of standard deviation {std:g}."
        what = f"In {times} {names} are computed from all training images and sent. Arrays among them go"
        if any(value.entries for value in made.method.values() if value.name in shared[0].extras):
            what = f"In {times} {names} of single training images is sent. It goes"
        notices.append(f"{what} on to the other sites, without this site's name.{noise}")
    if FINGERPRINT in sent:
        notices.append(
            "Before round 1 at most 50 of the site's images are looked at, and rounded numbers of them are sent to the "
            "server alone."
        )
    if sent and privacy.noise_multiplier is not None:
        notices.append(
            f"The account (ε, δ) does not cover {', '.join(sent)}: these leave in addition to what the bound speaks of."
        )
    return notices


def _asks(made: Forecast) -> str:
    """Words for those who ask for the values: the method, the study, or both."""
    of_method = {value.name for value in made.method.values()}
    wanted = {*made.wanted, *(name for sending in made.disclosures for name in sending.extras)}
    who = [f"the method: {made.method.title}"] if of_method & wanted else []
    return f"Of {' and '.join([*who, *(['the study'] if FINGERPRINT in wanted else [])])}."


def _method_values(made: Forecast) -> list[list[str]]:
    """Rows of what the method asks of this site beside the model, and what each value tells."""
    when = {value.name: value.when for value in made.method.values()}
    when |= {v.name: f"from round {v.round + 1} on" for v in made.method.values() if v.when == FROM_A_ROUND}
    names = {*made.wanted, *(name for sending in made.disclosures for name in sending.extras)}
    first = [[FINGERPRINT, "numbers", "to the server", "before round 1", TELLS]] if FINGERPRINT in names else []
    return first + [
        [v.name, v.shape, v.direction, when[v.name], v.tells] for v in made.method.values() if v.name in names
    ]


def _note(made: Forecast) -> str:
    text = "Bytes are those of the tensors; numbers and framing add about a kilobyte to an answer."
    tasks = {sending.task for sending in made.disclosures}
    if "metadata" in tasks:
        text += " How large the answers to metadata are, the method and its settings say."
    if "train" in tasks:
        text += " Each update also says its round and number of steps, which the job sets."
    if any("train_" in name for sending in made.disclosures for name in sending.scalars):
        text += " Means of the last steps, train_…, are also sent while the site works, "
        text += f"{PROGRESS_LINES} times a round."
    return text


def _rows(made: Forecast) -> list[list[str]]:
    rows = []
    for sending in made.disclosures:
        tensors, each = str(len(sending.tensors)) if sending.tensors else NOTHING, size(sending.bytes or None)
        passes = ", ".join([*sending.scalars, *sending.extras]) or NOTHING
        what = "held back, see above" if sending.refused else passes
        rows.append([sending.task, _rounds(sending), str(sending.times), tensors, each, what])
    return rows


def _leaving(made: Forecast) -> list[list[str]]:
    rows: dict[str, list[str]] = {}
    for sending in (s for s in made.disclosures if not s.refused):
        for name, kind in sending.tensors.items():
            when = "released after training" if sending.task == "release" else f"rounds {_rounds(sending)}"
            if name in rows:
                rows[name][3] += f", {when}"
            else:
                rows[name] = [name, kind, str(sending.sizes[name]), when]
    return list(rows.values())


def _staying(made: Forecast) -> list[list[str]]:
    leaving = {row[0] for row in _leaving(made)}
    held = {n: k for s in made.disclosures for n, k in s.tensors.items()}
    return [[name, kind] for name, kind in {**held, **made.private}.items() if name not in leaving]


def _rounds(sending: Disclosure) -> str:
    """``1–6`` as a person counts."""
    if sending.rounds is None:
        return "after training"
    first, last = (round + 1 for round in sending.rounds)
    if sending.task == FINGERPRINT:
        return "before 1"
    return str(first) if first == last else f"{first}–{last}"


def limit_rows(site: SiteConfig) -> list[list[str]]:
    """Rows of what the site has limited, and of what holds where it has set no limit."""
    privacy = site.privacy
    said = {
        "tensors": _listed(privacy.allowed_tensors, "all that a job shares"),
        "numbers": _listed(privacy.allowed_metrics, "all"),
        "extras of a method": _listed(privacy.allowed_extras, ""),
        "test scores": f"of {privacy.min_cases} cases or more",
        "size of an answer": "any" if privacy.max_bytes is None else f"at most {size(privacy.max_bytes)}",
        "norm of an update": "any" if privacy.clip_norm is None else f"cut to {privacy.clip_norm:g} where it is larger",
        "noise": "none" if privacy.noise_std is None else NOISE.format(privacy.noise_std),
        "private layers": RELEASED[site.allow_release + site.allow_kept_release],
    }
    if privacy.extras_noise is not None:
        said["noise of extras"] = f"{NOISE.format(privacy.extras_noise)} of an array"
    if privacy.noise_std is not None:
        most = "no limit" if privacy.max_epsilon is None else f"at most {privacy.max_epsilon:g}"
        said["account"] = f"ε at δ = {plain_delta(privacy.delta)}: {most}; kept in {privacy.account}, over all jobs"
    return [[limit, value] for limit, value in said.items()]


def _listed(names: Sequence[str] | None, everything: str) -> str:
    return everything if names is None else ", ".join(names) or "none"


def forecast(folder: Path, site: SiteConfig) -> Forecast:
    """Work out what ``site`` would send in the job in ``folder``.

    Raises:
        JobError, BundleError: the job cannot be read, or has no such site.
        PrivacyError: the site's account is damaged.
    """
    job = read_job(folder, site.allowed_classes)
    answers = SiteDisclosures(job, site)
    before, training = list(answers.before_training()), list(answers.training())
    training_rounds = sum(sending.times for sending in training if not sending.refused)
    training, epsilon = _within_account(training, training_rounds, PrivacyAccount(site.privacy))
    sent = {name for sending in training for name in sending.tensors}
    private = describe({name: tensor for name, tensor in answers.tensors.items() if name not in sent})
    wanted = job.method.with_update(needed=True) if training else []
    asked = {"metadata": job.exchange.names, FINGERPRINT: [FINGERPRINT]}
    wanted += sorted({name for one in before for name in asked.get(one.task, ())})
    disclosures = [*before, *training, *answers.closing()]
    given = (job.name, answers.role, job.method, site, disclosures, private, training_rounds, epsilon, wanted)
    tells = answers.tells if any(one.task == "evaluate" and one.scalars for one in disclosures) else ""
    releases = any(one.task == "release" and not one.refused for one in disclosures)
    return Forecast(*given, tells, _released(job.study, site) if releases else "")


def _released(study: Study, site: SiteConfig) -> str:
    """Say what becomes of the private layers."""
    others = "sites without any, and to labelled ones to compare with theirs," if study.gain else "sites without any"
    what = "on" if study.release_from != ALL_SITES else "the mean of all sites'"
    text = f"The private layers go to the server after training, and {what} to {others}"
    if not study.release_keep:
        return f"{text} until these are scored."
    kept = "allows that" if site.allow_kept_release else "does not allow that ('allow_kept_release'): it is not kept"
    return f"{text}. The job would keep the mean for the model of a site that never trained; this site {kept}."


def _within_account(
    training: list[Disclosure], training_rounds: int, account: PrivacyAccount
) -> tuple[list[Disclosure], tuple[float, float] | None]:
    """Cut the updates to those that the account allows."""
    if account.privacy.noise_multiplier is None:
        return training, None
    most, left, sent = account.privacy.max_epsilon, training_rounds, []
    if most is not None:
        left = next((n for n in range(training_rounds) if account.epsilon(n + 1) > most), training_rounds)
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
