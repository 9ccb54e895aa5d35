"""Sites of a study with ``gain`` that will not be able to say what they gain: known before the training."""

from collections.abc import Iterator
from pathlib import Path

from fedmed.data.datalist import list_entries
from fedmed.data.patients import owner
from fedmed.errors import JobError
from fedmed.jobs.job_folder import read_job
from fedmed.reports.hospital_page import PAGE
from fedmed.reports.words import count
from fedmed.settings.server import load_server
from fedmed.settings.site import SiteConfig, load_site
from fedmed.training.jackknife import FEWEST_FREE


def gain_notes(job: Path) -> list[str]:
    """Sentences on what a labelled site of a study with ``gain`` will not tell; none for another study.

    Args:
        job: job folder, whose sites' settings are on this machine.

    Raises:
        JobError: no labelled site could tell anything.
    """
    read = read_job(job, load_server().allowed_classes)
    if not read.study.gain:
        return []
    sites = [load_site(site) for site in read.study.of_role("supervised")]
    silent = {site.site: text for site in sites if (text := _silent(site))}
    if len(silent) == len(sites):
        raise JobError(f"{read.name}: 'gain' would be told by no site: {'; '.join(silent.values())}")
    chosen = read.study.select != "last"
    return [*silent.values(), *(text for one in sites if one.site not in silent for text in _limits(one, chosen))]


def _silent(site: SiteConfig) -> str:
    """Say why a site tells no gain at all; empty where it does."""
    if not site.train_alone:
        return f"{site.site} trains no model alone: 'train_alone' is false in {site.source}"
    if not list_entries(site.datalist, "testing"):
        return (
            f"{site.site} has no list 'testing' in {site.datalist}, so what it gains stays unknown; prepare it with "
            "'--split' that leaves some cases for the test"
        )
    return ""


def _limits(site: SiteConfig, chosen: bool) -> Iterator[str]:
    entries = list_entries(site.datalist, "testing")
    patients, least = len({owner(entry) or f"case {place}" for place, entry in enumerate(entries)}), FEWEST_FREE + 1
    if chosen and not list_entries(site.datalist, "validation"):
        yield f"{site.site} has no list 'validation': of its own model the last round's counts"
    if patients < least:
        yield f"{site.site} tests {count(patients, 'patient')}: its gain has no interval, for which {least} are needed"
    if patients < site.privacy.min_gain_cases:
        yield (
            f"{site.site} tests {count(patients, 'patient')}: its gain is on its own page alone, {PAGE} in the "
            f"site's folder of the job, and withheld from the study: 'privacy.min_gain_cases' is "
            f"{site.privacy.min_gain_cases}"
        )
