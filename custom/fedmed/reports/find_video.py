"""Find a video of a site that a person names, its labels and masks, and what a run called of it."""

from pathlib import Path

from fedmed.data.datalist import UNLABELED, case_names, list_entries, listed_file, read_datalist
from fedmed.errors import DataError, JobError
from fedmed.reports.run import JOB_FOLDER
from fedmed.settings.site import SiteConfig, load_named

LISTS = ("testing", "training", "validation", "unlabeled")


def files_of(name: str, video: str, key: str | None, run: Path | None) -> tuple[Path, dict[str, Path]]:
    """The video of a site, and the files of its labels, masks and, where a run is given, predictions.

    Args:
        name: the site's, or its YAML.
        video: place in the list, name or path.
        key: the list; by default the first that there is.
        run: workspace, or the site's folder of a job.

    Raises:
        DataError: there is no such video, or one of its files is missing.
        JobError: the run has no test of it.
    """
    site = load_named(name)
    listed, place, files = find_video(site, video, key)
    path = files.pop("video")
    if run:
        files["predictions"] = find_predictions(run, site.site, listed, place, path)
    return path, files


def find_video(site: SiteConfig, video: str, key: str | None) -> tuple[str, int, dict[str, Path]]:
    """The list, the place in it and the files of the video that a person means by a place, a name or a path.

    Raises:
        DataError: there is no such video, or one of its files is missing.
    """
    from fedmed.data.video.label_table import unknown

    content = read_datalist(site.datalist)
    key = key or next((one for one in LISTS if content.get(one)), LISTS[0])
    keys = [key] if video.isdigit() else [key, *(one for one in LISTS if one != key)]
    listed = [(one, *item) for one in keys for item in enumerate(list_entries(site.datalist, one, video.isdigit()))]
    known = {}
    for one, place, entry in listed:
        if isinstance(entry, dict) and isinstance(entry.get("video"), str):
            path, (name,) = site.data_root / entry["video"], case_names([entry])
            names = {str(place)} if video.isdigit() else {name, path.name, entry["video"], str(path)}
            known[str(place) if video.isdigit() else name] = one
            if video in names or Path(video).absolute() == path:
                parts = ["video", *(part for part in ("labels", "masks") if part in entry and one != UNLABELED)]
                where = f"{site.datalist}: entry {place} of '{one}'"
                return one, place, {part: listed_file(site.data_root, where, part, entry) for part in parts}
    has = f"{unknown('video', video, list(known))}; a place is one in '{key}'" if known else f"'{key}' names no video"
    raise DataError(f"{site.datalist}: {has}")


def find_predictions(run: Path, site: str, key: str, place: int, video: Path) -> Path:
    """The table that a site wrote for a video when it tested a run's model.

    Raises:
        JobError: no test of videos is there, or none of this one.
    """
    from fedmed.training.video_recorder import frames_file

    places = [where / "evaluation" for where in (run / site / JOB_FOLDER, run / JOB_FOLDER, run / "fedmed", run)]
    folder = next((one for one in places if (one / "frames").is_dir()), None)
    if folder is None:
        looked = ", ".join(map(str, places))
        raise JobError(f"no test of videos of {site} at {run}; looked at {looked}. Give a run that ended, where it ran")
    file = frames_file(folder, place, case_names([{"video": video}])[0])
    if key != "testing" or not file.is_file():
        tested = ", ".join(sorted(path.name for path in file.parent.iterdir()))
        raise JobError(f"the run at {run} did not test {video.name} of '{key}'; of 'testing' it tested {tested}")
    return file
