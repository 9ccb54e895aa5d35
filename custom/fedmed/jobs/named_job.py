"""The job folder or study that a person means by a path, or by the name of one of FedMed's own."""

from difflib import get_close_matches
from pathlib import Path

from fedmed.errors import JobError
from fedmed.files import SHIPPED
from fedmed.jobs.given_path import demand


def study_or_job(path: Path) -> Path:
    """As :func:`named_job`, of what must be there; loads neither PyTorch nor MONAI, so that a mistake is said at once.

    Raises:
        JobError: it is neither a study nor a job folder; says what it is, and which command takes it.
    """
    place = named_job(path)
    demand(place, "study", "job")
    return place


def named_job(path: Path) -> Path:
    """Path of what is named: as it is where something lies there, else FedMed's own job or study of that name.

    Raises:
        JobError: there is neither, but a name that is nearly the same.
    """
    path = path.expanduser()
    if path.exists() or len(path.parts) != 1:
        return path
    shipped = (SHIPPED / "jobs" / path.name, SHIPPED / "studies" / f"{path.name}.yaml")
    if place := next((place for place in shipped if place.exists()), None):
        return place
    names = [one.stem for folder in ("jobs", "studies") for one in (SHIPPED / folder).glob("[!.]*")]
    if near := get_close_matches(path.name, names, 1, 0.8):
        raise JobError(f"{path} is not there; did you mean '{near[0]}'?")
    return path
