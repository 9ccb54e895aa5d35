"""The page that a hospital sends to the study lead: figures, and nothing that tells of a patient.

It is made of :mod:`fedmed.checks.facts`, of bins over all cases, and of the number of findings of each kind. No
sentence of a finding, no name of a file, folder, patient, user or machine, and no date gets into it.
"""

from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined

from fedmed.checks.bins import rounded, shown, summarise_classes
from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.facts import head, sections, summary
from fedmed.checks.site_findings import count_kinds
from fedmed.errors import FedMedError
from fedmed.files import write_atomically
from fedmed.reports import palette


def write_page(checked: CheckedSite, path: Path) -> Path:
    """Write the page.

    Raises:
        FedMedError: the file cannot be written.
    """
    write_output(path, page(checked).encode(), "--out")
    path.chmod(0o644)  # it is made to be passed on
    return path


def write_output(path: Path, content: bytes, option: str) -> Path:
    """Write a file that a person has named by an option.

    Raises:
        FedMedError: it cannot be written.
    """
    try:
        write_atomically(path, lambda stream: stream.write(content))
    except OSError as error:
        raise FedMedError(f"cannot write {path} ({error.strerror or error}); choose another with {option}") from error
    return path


def page(checked: CheckedSite) -> str:
    """Return the page's HTML."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    source = resources.files("fedmed.checks").joinpath("templates", "check.html.j2").read_text(encoding="utf-8")
    charts = checked.inspection.bins(checked.images) + summarise_classes(checked.entries, checked.demands.classes or ())
    return environment.from_string(source).render(
        site=checked.site.site,
        ready=checked.ready,
        summary=summary(checked),
        head=head(checked),
        sections=sections(checked),
        kinds=count_kinds(checked.findings),
        charts=charts,
        checked="data" not in checked.left_out,
        rounded=rounded,
        shown=shown,
        light=palette.css(dark=False),
        dark=palette.css(dark=True),
    )
