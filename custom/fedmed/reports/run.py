"""Read what a run left on disk.

A run is a simulator workspace, the equal tree of the in-process loop, or the server's own folder of a real
federation, where the sites' folders (pictures, cases) never arrive. Rounds are counted from 0 in the files.
"""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from fedmed.bundles.score import DICE, Score
from fedmed.data.patients import TrainedOn
from fedmed.data.structure import Structure
from fedmed.errors import FedMedError, JobError
from fedmed.methods.find_method import method_of_run
from fedmed.methods.method import Method
from fedmed.reports.run_contents import Run, Site
from fedmed.reports.run_files import DAMAGED, number, read_compared, read_lines, read_record, read_rounds, read_table
from fedmed.settings.server import load_server

JOB_FOLDER = Path("simulate_job") / "fedmed"
SERVER_FOLDERS = (Path("server") / JOB_FOLDER, Path("workspace/fedmed"), Path("fedmed"), Path("."))
ROLES = ("supervised", "unsupervised", "evaluate")  # the order of a report, labelled sites first


def server_folder(folder: Path) -> Path:
    """Return the folder that holds ``run.json``.

    Raises:
        JobError: the folder is missing or not that of a run, or the run stopped before it began.
    """
    if not folder.is_dir():
        what = "it is a file" if folder.exists() else "the folder does not exist"
        raise JobError(f"no run at {folder}: {what}; give the workspace of a simulator run")
    places = (folder / place for place in SERVER_FOLDERS)
    if records := next((place for place in places if (place / "run.json").is_file()), None):
        return records
    if (folder / "server").is_dir():
        raise JobError(
            f"the run at {folder} stopped before its first round: {SERVER_FOLDERS[0] / 'run.json'} is missing; "
            f"the reason is in the log ({folder.name}.log beside it, or server/log.txt inside)"
        )
    raise JobError(
        f"{folder} is not the folder of a run: neither {SERVER_FOLDERS[0] / 'run.json'} nor run.json is in it; "
        "give the simulator's workspace (default: simulator_workspace) or the server's job folder"
    )


def read_run(folder: str | Path) -> Run:
    """Read a run, finished or not.

    Raises:
        JobError: the folder is missing or not that of a run, or the run stopped before it began.
        FedMedError: a file of the run is damaged.
    """
    folder = Path(folder).expanduser().absolute()
    server = server_folder(folder)
    facts, rounds = read_record(server / "run.json"), read_rounds(server / "rounds.jsonl")
    score, ended = score_of(facts), server / "result.json"
    sites = [_site(folder, name, entry, score) for name, entry in (facts.get("sites") or {}).items()]
    compared, uncompared = read_compared(server / "fingerprint.json")
    return Run(
        folder=folder,
        job=str(facts.get("job") or folder.name),
        bundle=str(facts.get("bundle") or "unknown"),
        overlays=[str(overlay) for overlay in facts.get("overlays") or []],
        seed=facts.get("seed"),
        total_rounds=int(facts.get("rounds") or len(rounds)),
        sites=sorted(sites, key=lambda site: (*ROLES, site.role).index(site.role)),
        rounds=rounds,
        result=read_record(ended) if ended.is_file() else None,
        started=str(facts.get("started") or ""),
        config=facts.get("config") or {},
        versions=facts.get("versions") or {},
        hardware=facts.get("hardware") or {},
        resumed=facts.get("resumed") or {},
        score=score,
        kind=str(facts.get("kind") or ""),
        method=known_method(facts),
        classes=[Structure(**one) for one in facts.get("classes") or []],
        compared=compared,
        uncompared=uncompared,
        grid=[float(size) for size in facts.get("grid") or []],
    )


def score_of(facts: Mapping[str, Any]) -> Score:
    """The score that a ``run.json`` names; Dice for runs of the time when there was no other."""
    values = facts.get("score")
    if not isinstance(values, Mapping) or not values.get("name"):
        return DICE
    name = str(values["name"])
    known = {entry.name: str(values[entry.name]) for entry in fields(Score) if values.get(entry.name)}
    return Score(**{"label": name, "test": name, **known})


def known_method(facts: Mapping[str, Any]) -> Method:
    """The method that a ``run.json`` names; the base, for which a report shows what every run has, where it names none
    or one that is not installed, or not allowed, on this machine."""
    try:
        return method_of_run(facts, load_server().allowed_classes)
    except JobError:
        return Method()


def _site(root: Path, name: str, facts: dict[str, Any], score: Score) -> Site:
    if Path(name).name != name:  # it becomes part of the names of pictures
        raise FedMedError(f"run.json names a site '{name}', which is a path; {DAMAGED}")
    site = Site(name, str(facts.get("role") or "unknown"), number(facts.get("weight")) or 0.0)
    if not (root / name / JOB_FOLDER).is_dir():
        return site
    site.folder = root / name / JOB_FOLDER
    evaluation = site.folder / "evaluation"
    site.cases = read_cases(evaluation)
    for line in read_lines(site.folder / "progress.jsonl"):
        if line.get("event") == "validated" and line.get("task") == "validate":
            site.closing_score = number(line.get("score", line.get(score.name)))  # the name: runs of an earlier FedMed
        if line.get("event") == "data":
            site.trains_on = TrainedOn.read(line)
        if line.get("event") == "adapted":
            site.adapted = str(line.get("words") or "")
        if line.get("event") == "error":
            site.errors.append(error_text(line))
    return site


def read_cases(evaluation: Path) -> pd.DataFrame:
    """Cases of an evaluation, as text, with a column ``patient``; a case of nobody in particular is a patient of its
    own. Empty where there are none."""
    cases, patients = read_table(evaluation / "cases.csv"), read_table(evaluation / "patients.csv")
    if cases.empty or "case" not in cases:
        return cases
    known = {"case", "patient"} <= set(patients) and patients["case"].tolist() == cases["case"].tolist()
    owners = patients["patient"] if known else pd.Series("", cases.index)
    alone = cases["case"] + " (" + cases.groupby("case").cumcount().astype(str) + ")"
    return cases.assign(patient=owners.where(owners != "", alone))


def error_text(line: dict[str, Any]) -> str:
    return str(line.get("message") or "no message was written")
