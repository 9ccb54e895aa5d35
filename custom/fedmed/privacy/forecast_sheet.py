"""What a site would send in a job as a page: what a data-protection officer asks for before the first round."""

from fedmed.jobs.plan import PROGRESS_LINES
from fedmed.privacy.forecast import Forecast, Sending
from fedmed.reports.ledger_page import weak
from fedmed.reports.sheet import Sheet, SheetTable
from fedmed.reports.words import NOTHING, count, plain_delta, plain_epsilon, size
from fedmed.settings.site import SiteConfig

KIND = "what would leave this site"
ROLES = {"supervised": "trains with labels", "unsupervised": "trains without labels", "evaluate": "is only scored"}
NEVER = (
    "Images, masks, patients' names or numbers, file names, folders, results of single cases and pictures. An error at "
    "the site travels as a code; its text stays in the site's own log. Each answer is put together anew from what the "
    "limits let pass, so that nothing else can travel with it, and is written into the site's ledger before it is sent."
)
REMAINS = (
    "An update is computed from the site's images and may carry information about them: with knowledge of the model, "
    "images have been partly reconstructed from updates of other networks. Sharing fewer tensors, clipping and noise "
    "make that harder. The account (ε, δ) is a bound for the site's data as a whole and for whoever sees all that the "
    "site sends. It says nothing of single patients and does not cover the numbers, which carry no noise."
)


def forecast_sheet(made: Forecast) -> Sheet:
    """Put a forecast on a page."""
    facts = [("role", made.role), ("updates", str(made.updates)), ("bytes in all", size(made.bytes))]
    facts += [("tensors that leave", str(len(_leaving(made)))), ("tensors that stay", str(len(_staying(made))))]
    if made.epsilon:
        facts.append(("ε now → after", " → ".join(map(plain_epsilon, made.epsilon))))
    sent = SheetTable(
        "What each task sends", _note(made), ["task", "rounds", "times#", "tensors#", "each#", "numbers"], _rows(made)
    )
    limits = SheetTable(
        "This site's own limits", f"From {made.site.source}; no job can loosen them.", ["limit", "value"], []
    )
    limits.rows.extend([list(pair) for pair in limits_in_words(made.site)])
    leaving = SheetTable("Tensors that leave", "", ["name", "kind", "bytes#", "when"], _leaving(made), long=True)
    tables = [sent, limits, leaving]
    if stay := _staying(made):
        note = "They lie in the job's folder at the site."
        tables.append(SheetTable("Tensors that stay at the site", note, ["name", "kind"], stay, long=True))
    closing = [("What never leaves", [NEVER]), ("What remains", [REMAINS])]
    return Sheet(f"{made.site.site} in {made.job}", KIND, _summary(made), facts, tables, _notices(made), closing)


def _summary(made: Forecast) -> str:
    text = f"In the job {made.job} the site {made.site.site} {ROLES[made.role]}"
    if not made.updates:
        return f"{text}. It would send no update."
    each = size(max(s.bytes for s in made.sendings if s.task == "train" and not s.refused))
    text += f" and would send {count(made.updates, 'update')} of at most {each}, {size(made.bytes)} in all"
    if made.epsilon is None:
        return f"{text}. No noise is added."
    spent = f"ε = {plain_epsilon(made.epsilon[1])} at δ = {plain_delta(made.site.privacy.delta)}"
    return f"{text}, with noise: {spent} afterwards."


def _notices(made: Forecast) -> list[str]:
    notices = []
    for sending in made.sendings:
        if sending.refused:
            notices.append(f"The site's limits hold {sending.task} back ({_rounds(sending)}): {sending.refused}")
    if made.updates < made.asked:
        most = made.site.privacy.max_epsilon
        notices.append(
            f"The account allows {made.updates} of {made.asked} updates: then max_epsilon {most:g} is reached."
        )
    notices += weak(made.epsilon[1]) if made.epsilon else []
    notices += _extras(made)
    if made.site.privacy.noise_seed is not None:
        notices.append("'noise_seed' is set: the noise can be repeated, so it protects nothing.")
    return notices


def _extras(made: Forecast) -> list[str]:
    """What is special about values beside the model: who gets them, and that no account covers them."""
    notices, own = [], made.site.privacy
    sent = sorted({name for sending in made.sendings for name in sending.extras})
    if held := sorted(set(made.wanted) - set(sent)):
        notices.append(
            f"The job asks for {', '.join(held)}, which 'privacy.allowed_extras' does not list: it stays here, and the "
            "site trains all the same."
        )
    if shared := [sending for sending in made.sendings if sending.task == "metadata" and sending.extras]:
        names, times = ", ".join(shared[0].extras), count(shared[0].times, "round")
        noise = "" if own.extras_noise is None else f" Arrays get noise of standard deviation {own.extras_noise:g}."
        notices.append(
            f"In {times} {names} are computed from all training images and sent. Arrays among them, such as mean and "
            f"covariance of features, go on to the other sites, without this site's name.{noise}"
        )
    if sent and own.noise_multiplier is not None:
        notices.append(
            f"The account (ε, δ) does not cover {', '.join(sent)}: these leave in addition to what the bound speaks of."
        )
    return notices


def _note(made: Forecast) -> str:
    text = "Bytes are those of the tensors; numbers and framing add about a kilobyte to an answer."
    if any(sending.task == "metadata" for sending in made.sendings):
        text += " How large the answers to metadata are, the method and its settings say."
    if any(sending.task == "train" for sending in made.sendings):
        text += " Each update also says its round and number of steps, which the job sets."
    if any("train_" in name for sending in made.sendings for name in sending.scalars):
        text += (
            f" Means of the last steps, train_…, are also sent while the site works, {PROGRESS_LINES} times a round."
        )
    return text


def _rows(made: Forecast) -> list[list[str]]:
    rows = []
    for sending in made.sendings:
        tensors, each = str(len(sending.tensors)) if sending.tensors else NOTHING, size(sending.bytes or None)
        what = "held back, see above" if sending.refused else ", ".join(sending.scalars + sending.extras) or NOTHING
        rows.append([sending.task, _rounds(sending), str(sending.times), tensors, each, what])
    return rows


def _leaving(made: Forecast) -> list[list[str]]:
    found: dict[str, list[str]] = {}
    for sending in (s for s in made.sendings if not s.refused):
        for name, kind in sending.tensors.items():
            when = "released after training" if sending.task == "release" else f"rounds {_rounds(sending)}"
            if name in found:
                found[name][3] += f", {when}"
            else:
                found[name] = [name, kind, str(sending.sizes[name]), when]
    return list(found.values())


def _staying(made: Forecast) -> list[list[str]]:
    leaving = {row[0] for row in _leaving(made)}
    held = {n: k for s in made.sendings for n, k in s.tensors.items()}
    return [[name, kind] for name, kind in {**held, **made.private}.items() if name not in leaving]


def _rounds(sending: Sending) -> str:
    """``1–6`` as a person counts."""
    if sending.rounds is None:
        return "after training"
    first, last = (round + 1 for round in sending.rounds)
    return str(first) if first == last else f"{first}–{last}"


def limits_in_words(site: SiteConfig) -> list[tuple[str, str]]:
    """The limits that the site has set, and what holds where it has set none."""
    own = site.privacy
    shared = own.allowed_tensors
    said = [("tensors", "all that a job shares" if shared is None else ", ".join(shared) or "none")]
    said.append(("numbers", "all" if own.allowed_metrics is None else ", ".join(own.allowed_metrics) or "none"))
    said.append(("extras of a method", ", ".join(own.allowed_extras) or "none"))
    if own.extras_noise is not None:
        said.append(
            ("noise of extras", f"Gaussian, standard deviation {own.extras_noise:g} in every value of an array")
        )
    said.append(("size of an answer", "any" if own.max_bytes is None else f"at most {size(own.max_bytes)}"))
    said.append(
        ("norm of an update", "any" if own.clip_norm is None else f"cut to {own.clip_norm:g} where it is larger")
    )
    if own.noise_std is None:
        said.append(("noise", "none"))
    else:
        said.append(("noise", f"Gaussian, standard deviation {own.noise_std:g} in every value"))
        most = "no limit" if own.max_epsilon is None else f"at most {own.max_epsilon:g}"
        said.append(("account", f"ε at δ = {plain_delta(own.delta)}: {most}; kept in {own.account}, over all jobs"))
    said.append(("private layers", "released when a job asks" if site.allow_release else "never released"))
    return said
