"""Pictures of what one site kept of a test: in a real federation it is at that site alone, and no report has it."""

from collections.abc import Callable, Mapping
from pathlib import Path

from matplotlib.figure import Figure

from fedmed.errors import FedMedError, JobError
from fedmed.reports import plots
from fedmed.reports.feature_pictures import feature_figure, feature_pictures
from fedmed.reports.run import JOB_FOLDER
from fedmed.reports.run_contents import Site
from fedmed.reports.timelines import read_phases, ribbons

EVALUATION = "evaluation"


def tested_site(folder: Path, name: str | None, title: str) -> Site:
    """A site that tested a model.

    Args:
        folder: the site's folder of a job, or its ``fedmed``, or the ``evaluation`` in it; with a name, of a run.
        name: of a site of a simulation.
        title: what pictures call it.

    Raises:
        JobError: no test is there.
    """
    inside = folder.parent if folder.name == EVALUATION else folder
    places = [folder / name / JOB_FOLDER] if name else [inside, inside / "fedmed", inside / JOB_FOLDER]
    if found := next((place for place in places if (place / EVALUATION).is_dir()), None):
        return Site(title, "", folder=found)
    looked = ", ".join(str(place / EVALUATION) for place in places)
    raise JobError(f"no test of a model at {folder}; looked for {looked}. Give the site's folder of a job that ended")


def phase_pictures(site: Site) -> Mapping[str, Figure]:
    """``ribbons`` and ``features``, of what is there.

    Raises:
        JobError: neither is there.
        DataError: a file is damaged.
    """
    timelines, features = list(site.pictures(read_phases)), feature_pictures(site)
    found = {"ribbons": ribbons(timelines, site.name)} if timelines else {}
    found |= {"features": feature_figure(features, site.name)} if features else {}
    if not found:
        raise JobError(
            f"{site.folder} has a test and nothing to draw of it, neither best.npz nor features.npz; give the site's "
            "folder of a job for phases of operations whose test ended"
        )
    return found


def write_pictures(draw: Callable[[], Mapping[str, Figure]], out: Path, dots: int) -> list[Path]:
    """Write each picture as NAME.png into a folder, which is made; return the files.

    Raises:
        FedMedError: the folder cannot be written.
    """
    with plots.style():
        figures = {out / f"{name}.png": figure for name, figure in draw().items()}
        try:
            out.mkdir(parents=True, exist_ok=True)
            for path, figure in figures.items():
                plots.png(figure, path, dots)
        except OSError as error:
            raise FedMedError(f"cannot write pictures to {out}: {error}; choose another folder with --out") from error
    return list(figures)
