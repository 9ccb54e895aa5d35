"""The list of all entries that stays at the hospital: it names files and patients."""

from collections.abc import Iterator
from pathlib import Path

from fedmed.checks.checked_site import CheckedSite
from fedmed.checks.site_findings import NOTE, PROBLEM, SiteFinding, problems
from fedmed.data.prepare.report import table
from fedmed.errors import FedMedError
from fedmed.files import fedmed_home, write_atomically

COLUMNS = (
    *("list", "entry", "image", "mask", "class", "patient", "status", "what"),
    *("voxels", "spacing_mm", "hu_min", "hu_mean", "hu_max", "mask_ml"),
)


def default_csv(site: str) -> Path:
    """``$FEDMED_HOME/checks/<site>.csv``: a private place, where nobody takes it for the page to send."""
    return fedmed_home() / "checks" / f"{Path(site).name}.csv"


def write_csv(checked: CheckedSite, path: Path) -> Path:
    """Write one line an entry with all that was found about it, readable by the owner only.

    Raises:
        FedMedError: the file cannot be written.
    """
    content = table(COLUMNS, _rows(checked))
    try:
        write_atomically(path, lambda stream: stream.write(content))  # a temporary file has mode 0600 and keeps it
    except OSError as error:
        raise FedMedError(f"cannot write {path} ({error.strerror or error}); choose another file with --csv") from error
    return path


def _rows(checked: CheckedSite) -> Iterator[dict[str, object]]:
    found: dict[tuple[str, int | None], list[SiteFinding]] = {}
    for finding in checked.findings:
        for place in ((finding.list, finding.entry), *finding.also) if finding.list else ():
            found.setdefault(place, []).append(finding)
    for entry, case in checked.cases.items():
        yield {
            **_status(entry.list, entry.number, found.pop((entry.list, entry.number), [])),
            **{"image": entry.image, "mask": entry.mask, "class": entry.label, "patient": entry.patient},
            "voxels": "x".join(map(str, case.shape)),
            "spacing_mm": "x".join(f"{size:g}" for size in case.spacing),
            **{name: getattr(case, name) for name in ("hu_min", "hu_mean", "hu_max")},
            "mask_ml": case.mask_ml if entry.mask else None,
        }
    for (key, number), findings in found.items():  # entries that could not be opened at all
        yield _status(key, number, findings)


def _status(key: str, number: int | None, found: list[SiteFinding]) -> dict[str, object]:
    level = PROBLEM if problems(found) else NOTE if found else "fine"
    return {"list": key, "entry": number, "status": level, "what": " | ".join(f.text for f in found)}
