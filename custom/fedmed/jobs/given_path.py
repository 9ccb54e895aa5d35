"""Kind of a path that a person gives for a study or a job, and which command takes it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from fedmed.errors import JobError
from fedmed.yaml_limits import LONGEST, load_limited

# What a path may be -> words for it, and what to do with it; {path} is filled in.
KINDS = {
    "study": ("a study", "`fedmed study check {path}` checks it, `fedmed simulate {path}` runs it"),
    "job": ("a job folder", "`fedmed simulate {path}` runs it; its study is {path}/app_server/config/study.yaml"),
    "part of a job": ("a part of the job {job}", "give the job's folder, {job}"),
    "run": ("the folder of a run", "`fedmed report {path}` shows it, `fedmed export {path} OUT` makes a bundle of it"),
    "bundle": ("a bundle", "a study names it: `bundle: {name}`; `fedmed study init METHOD` writes one to begin with"),
    "exported bundle": (
        "an exported bundle",
        "`fedmed infer {path} SERIES OUT.dcm` uses it, `fedmed adapt {path} IMAGES OUT` adapts it",
    ),
    "part of a bundle": (
        "a configuration of the bundle {bundle}",
        "a study names the bundle, and its overlays by name",
    ),
    "site": ("the settings of a site", "`fedmed site check {path}` checks them"),
    "server": ("the settings of a server", "the server's kit holds them as local/fedmed_server.yaml"),
    "project": ("a project file, which says who takes part", "`fedmed provision {path}` makes kits of it"),
    "kit": ("a startup kit", "`fedmed site check SITE.yaml --kit {path}` checks it"),
    "table": ("a table of experiments", "`fedmed research` runs it"),
    "datalist": ("a site's list of images", "`fedmed site check SITE.yaml` checks it"),
    "other file": ("not a text of YAML", "`fedmed study init METHOD` writes a study to begin with"),
    "other folder": ("a folder that holds no job (meta.json is missing), run or bundle", "give the study's YAML"),
    "nothing": ("not there", "correct the path, or write a study: `fedmed study init METHOD`"),
}
RUNS = ("server/simulate_job", "simulate_job", "workspace/fedmed", "fedmed/run.json", "run.json")
LARGEST = 64 << 20  # bytes of a JSON file that is looked into; a site's lists may be long
LISTS = {"training", "validation", "testing", "unlabeled"}
STUDY_KEYS = {"sites", "method", "rounds"}  # in whose presence a YAML is meant as a study, whatever else is wrong


def kind_of(path: Path) -> str:
    """One of :data:`KINDS`. A YAML that is nothing else is taken for a study, whose mistakes its own check lists."""
    if not path.exists():
        return "nothing"
    return _kind_of_folder(path) if path.is_dir() else _kind_of_file(path)


def described(path: Path) -> str:
    """Sentence, without its full stop, that says what a path is and what takes it."""
    words, remedy = KINDS[kind_of(path)]
    places = {"path": path, "name": path.name, "job": _job_of(path), "bundle": path.parent.parent}
    return f"{path} is {words.format(**places)}; {remedy.format(**places)}"


def demand(path: Path, *wanted: str) -> str:
    """Return what a path is, if it is one of the kinds that are wanted.

    Args:
        wanted: of :data:`KINDS`, such as ``study`` and ``job``.

    Raises:
        JobError: it is something else; says what, and which command takes it.
    """
    if (kind := kind_of(path)) in wanted:
        return kind
    missing = " or ".join(KINDS[one][0] for one in wanted)
    raise JobError(f"{missing} is needed here: {described(path)}")


def _kind_of_folder(path: Path) -> str:
    if (path / "meta.json").is_file() and "deploy_map" in _values(path / "meta.json"):
        return "job"
    if (path / "configs" / "metadata.json").is_file():
        return "exported bundle" if "federation" in _values(path / "configs" / "metadata.json") else "bundle"
    if any((path / place).exists() for place in RUNS):
        return "run"
    if any((path / "startup").glob("fed_*.json")):
        return "kit"
    return "other folder" if _job_of(path) is None else "part of a job"


def _kind_of_file(path: Path) -> str:
    in_job = _job_of(path) is not None
    if path.suffix == ".json":
        return "part of a job" if in_job else "datalist" if LISTS & set(_values(path)) else "other file"
    if (path.parent / "metadata.json").is_file() and path.parent.name == "configs":
        return "part of a bundle"
    try:
        with path.open(encoding="utf-8") as stream:
            keys = set(_mapping(load_limited(stream.read(LONGEST + 1))))
    except (OSError, UnicodeDecodeError):
        return "other file"
    except (yaml.YAMLError, ValueError, RecursionError):
        return "study"  # its reader says the line
    if keys & STUDY_KEYS:
        return "study"
    signs = {"project": {"participants"}, "table": {"arms"}, "server": {"demo_site"}, "site": {"data_root", "demo"}}
    signs["site"] |= {"datalist", "privacy", "words"}
    return next((kind for kind, marks in signs.items() if keys & marks), "study")


def _job_of(path: Path) -> Path | None:
    """Job folder in which a path lies, a few folders deep."""
    return next((folder for folder in [*path.parents][:3] if "deploy_map" in _values(folder / "meta.json")), None)


def _values(path: Path) -> Mapping[str, Any]:
    """Content of a JSON file; nothing where it is not there or holds something else."""
    try:
        small = path.is_file() and path.stat().st_size <= LARGEST
        return _mapping(json.loads(path.read_bytes())) if small else {}
    except (OSError, ValueError, RecursionError):
        return {}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
