"""The hospitals of a description, opened, and the nodes that an arm makes of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedmed.errors import DataError, JobError
from fedmed.experiments.pretraining.arms import Arm
from fedmed.experiments.pretraining.cases import Case, Hospital, from_site, from_table
from fedmed.experiments.pretraining.description import Description
from fedmed.experiments.pretraining.split import halves, share
from fedmed.settings.site import SiteConfig, load_site, parse_site

EXTRAS = ["rsa", "mu", "sigma", "n"]  # what FedMoCo sends beside the model


def open_hospitals(description: Description) -> dict[str, Hospital]:
    """Read every hospital's list of images, in the description's order.

    Raises:
        JobError: the data is not there, or a task's classes are not all at its hospital.
        DataError, SiteConfigError: a list or a site's settings cannot be read.
    """
    tested = {task.site for task in description.tasks}
    tested |= {task.external.site for task in description.tasks if task.external}
    found = {}
    for name, where in description.sites.items():
        if where:
            folder = description.data_root() / where["folder"]
            found[name] = from_table(_settings(description, name, folder), folder / where["table"], name in tested)
        else:
            found[name] = from_site(load_site(name))
    for task in description.tasks:
        _check_task(task, found)
    return found


def node_cases(description: Description, hospitals: Mapping[str, Hospital], arm: Arm) -> dict[str, list[Case]]:
    """Images that each node of an arm pre-trains on: training images alone, their labels dropped where used.

    Args:
        description: its order of sites is that of ``arm.sizes`` and ``arm.skew``.
        hospitals: opened.
        arm: how many nodes, of which sizes, with which skew.

    Raises:
        JobError: sizes or skew do not fit the number of hospitals, or a node is left without images.
    """
    names = list(hospitals)
    for key, values in (("sizes", arm.sizes), ("skew", arm.skew)):
        if values and len(values) != len(names):
            raise JobError(f"arm '{arm.name}': '{key}' has {len(values)} entries for {len(names)} hospitals")
    nodes: dict[str, list[Case]] = {}
    for place, name in enumerate(names):
        cases = list(hospitals[name].training)
        if arm.skew:
            cases = _skewed(description, cases, name, arm.skew[place])
        if arm.sizes:
            cases = share(cases, arm.sizes[place], "size")
        parts = (
            {name: cases}
            if arm.split == 1
            else dict(zip((f"{name}_1", f"{name}_2"), halves(cases, "nodes"), strict=True))
        )
        nodes |= parts
    if empty := [name for name, cases in nodes.items() if not cases]:
        raise JobError(f"arm '{arm.name}': the node '{empty[0]}' has no images; change its size or skew")
    return nodes


def _skewed(description: Description, cases: list[Case], site: str, kind: str) -> list[Case]:
    healthy = set(description.healthy.get(site, []))
    return [c for c in cases if c.label is not None and (c.label in healthy) == (kind == "healthy")]


def _check_task(task: Any, hospitals: Mapping[str, Hospital]) -> None:
    hospital = hospitals[task.site]
    for kind, cases in (("training", hospital.training), ("testing", hospital.testing)):
        if missing := [name for name in task.classes if name not in {case.label for case in cases}]:
            raise JobError(
                f"task '{task.name}': '{task.site}' has no {kind} case of '{missing[0]}'; a task's classes must all "
                "come from one hospital, otherwise a class is told by its scanner"
            )
    if task.external:
        theirs = {case.label for case in hospitals[task.external.site].testing}
        if not set(task.external.theirs) < theirs:
            raise JobError(
                f"task '{task.name}': the external test at '{task.external.site}' needs images with and without "
                f"{', '.join(task.external.theirs)}; its labels are {', '.join(sorted(map(str, theirs)))}"
            )


def _settings(description: Description, name: str, folder: Path) -> SiteConfig:
    if not folder.is_dir():
        raise DataError(f"hospital '{name}': the folder {folder} does not exist; restore it, or set FEDMED_DATA")
    values = {"data_root": str(folder), "device": description.device, "threads": description.threads}
    values["privacy"] = {"allowed_extras": EXTRAS, "extras_min_images": 2}  # the study's own number holds
    return parse_site(name, values, folder / "labels.csv")
