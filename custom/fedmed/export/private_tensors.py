"""What is a site's own of a model, tensors and settings, from the state files of its run folder."""

import math
from pathlib import Path
from typing import Any

from torch import Tensor

from fedmed.class_paths import load_class
from fedmed.errors import ExportError, StateError
from fedmed.export.finished_run import FinishedRun
from fedmed.jobs.role_sharing import RolePolicies
from fedmed.recovery.site_state import SiteState
from fedmed.reports.run_files import read_lines
from fedmed.settings.server import load_server
from fedmed.training.corrections.correction import Correction

# A run folder, a site's simulator folder, the folder of the state itself.
PLACES = ("fedmed", "simulate_job/fedmed", ".")


def private_state(
    run: FinishedRun, policies: RolePolicies, names: list[str], site: str, site_run: Path | None, round: int
) -> dict[str, Tensor]:
    """Return the private tensors with which ``site`` was scored under the model after ``round``.

    Args:
        run: the run.
        policies: what each role keeps to itself.
        names: the network's tensors.
        site, site_run: whose tensors are wanted, and its run folder; None = below the simulator's workspace.
        round: the model's round.

    Raises:
        ExportError: an unknown site, one that keeps nothing or has trained nothing, a folder of another site or run,
            or a state file that is missing, damaged or incomplete.
    """
    expected = _expected(run, policies, names, site, round)
    trained, folder, state = _state(run, site, site_run, round)
    private = state.get("private", {})
    if missing := [name for name in expected if name not in private]:
        raise ExportError(
            f"the state of site '{site}' of round {trained} in {folder} lacks tensor '{missing[0]}': the site has not "
            "trained its own layers for this model"
        )
    return {name: private[name] for name in expected}


def site_settings(run: FinishedRun, site: str, site_run: Path | None, round: int) -> dict[str, Any]:
    """Return with which settings of ``inference`` a site sees images as it did under the model after ``round``.

    Raises:
        ExportError: an unknown site, or as :func:`private_state`.
    """
    check_site(run, site)
    kept = _state(run, site, site_run, round)[2].get("engine", {}).get("corrections", ())
    found: dict[str, Any] = {}
    rooms, allowed = ("fedmed.training", "fedmed.systems"), load_server().allowed_classes
    for entry in kept:
        kind: type[Correction] = load_class(entry["path"], rooms, allowed)
        found |= kind.inference_settings(entry["state"])
    return found


def _state(run: FinishedRun, site: str, site_run: Path | None, round: int) -> tuple[int, Path, dict[str, Any]]:
    """The round in which the site trained last before a model, its folder, and what it kept of that round."""
    trained = run.accepted(site, round)
    if trained is None:
        raise ExportError(f"site '{site}' has contributed to no round up to {round}; it has no layers for this model")
    root = Path(site_run).expanduser().absolute() if site_run else run.folder / site
    folder = next((root / place for place in PLACES if (root / place / "state").is_dir()), None)
    if folder is None:
        raise ExportError(
            f"the private state of site '{site}' is not in {root} (looked for fedmed/state); give the site's own run "
            "folder with --site-run"
        )
    _check_owner(run, folder, site)
    state = SiteState(folder)
    state.earlier = run.facts.get("resumed") or {}
    try:
        return trained, folder, state.load(trained)
    except StateError as error:
        raise ExportError(str(error)) from error


def check_site(run: FinishedRun, site: str) -> None:
    """Refuse a name that is not of a site of the run.

    Raises:
        ExportError: names the run's sites.
    """
    if site not in run.plan.sites:
        raise ExportError(f"the run has no site '{site}'; its sites are {', '.join(run.plan.sites)}")


def _expected(run: FinishedRun, policies: RolePolicies, names: list[str], site: str, round: int) -> list[str]:
    """Names that the site keeps to itself in the model's round."""
    sites = run.plan.sites
    check_site(run, site)
    if not policies.scorable(sites[site], round):
        able = [other for other, role in sites.items() if policies.scorable(role, round)]
        raise ExportError(
            f"site '{site}' ({sites[site]}) has never trained its own layers against labels, so they make no model; "
            f"export at {' or '.join(able)}"
        )
    return policies.of(sites[site], round).private(names)


def _check_owner(run: FinishedRun, folder: Path, site: str) -> None:
    """The site noted each validation score as the server did; another site's or run's folder has other numbers."""
    metric, label = run.score.validation, run.score.label
    sent = {line["round"]: line.get("sites", {}).get(site, {}).get(metric) for line in run.rounds}
    for line in read_lines(folder / "progress.jsonl"):
        ours = sent.get(line.get("round")) if line.get("event") == "validated" and line.get("task") == "train" else None
        noted = line.get("score", line.get("dice", math.nan))  # runs of FedMed 0.1 noted Dice under its name
        if ours is not None and not math.isclose(ours, noted, rel_tol=1e-5):
            raise ExportError(
                f"{folder} is not of site '{site}' in this run: its validation {label} of round {line['round']} is "
                f"{noted}, the server was told {ours}; give the right --site-run"
            )
