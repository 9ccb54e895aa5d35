"""The job folder or study that a person means by a path, or by the name of one of FedMed's own."""

from pathlib import Path

from fedmed.files import SHIPPED


def named_job(path: Path) -> Path:
    """Path of what is named: as it is where something lies there, else FedMed's own job or study of that name."""
    path = path.expanduser()
    if path.exists() or len(path.parts) != 1:
        return path
    own = (SHIPPED / "jobs" / path.name, SHIPPED / "studies" / f"{path.name}.yaml")
    return next((place for place in own if place.exists()), path)
