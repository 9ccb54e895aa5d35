"""Where the jobs and the studies of this checkout lie."""

from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
JOBS, STUDIES = CHECKOUT / "jobs", CHECKOUT / "studies"


def shipped(name: str) -> Path:
    """The job folder of this name, or the YAML of the study."""
    return JOBS / name if (JOBS / name).is_dir() else STUDIES / f"{name}.yaml"


def names() -> list[str]:
    """Of all of them."""
    return sorted([path.name for path in JOBS.iterdir()] + [path.stem for path in STUDIES.iterdir()])
