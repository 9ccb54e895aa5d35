"""Write the files of a site: datalist, site YAML and the report of its preparation."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from fedmed.data.datalist import load_datalist
from fedmed.data.prepare.case import Case
from fedmed.data.prepare.place import DATALIST, REPORT
from fedmed.data.prepare.report import LISTS, write_csv, write_markdown

YAML_HEAD = """\
# Site '{site}'. Put this file where the federation looks for it (a provisioned site: local/fedmed_site.yaml in its
# workspace; the simulator: the folder named by FEDMED_SITE_CONFIGS).
"""
YAML_TAIL = """\
device: auto     # auto | cpu | cuda | cuda:1
threads: 2       # CPU threads of one process
workers: 0       # processes that load images
amp: false       # mixed precision, GPU only
# cache_dir: /fast/disk/fedmed-cache   # preprocessed cases, readable by the owner only
"""


def require_readable(datalist: Path, data_root: Path, classes: Sequence[str] | None = None) -> None:
    """Read a written datalist as training does, which raises DataError for what it does not accept.

    Args:
        datalist: the file.
        data_root: folder of the images.
        classes: names of the classes, if labels are class names instead of masks.
    """
    for name in LISTS:
        load_datalist(data_root, datalist, name, required=False, classes=classes)


def write_files(
    staging: Path,
    out: Path,
    site: str,
    data_root: Path,
    cases: Sequence[Case],
    settings: Mapping[str, object],
    stray: Sequence[Path] = (),
) -> None:
    """Write datalist, site YAML and both reports into ``staging``, with the paths they will have in ``out``."""
    files = {case.case: entry(case, data_root, out, staging) for case in cases if case.lists}
    write_datalist(staging / DATALIST, cases, files)
    write_site_yaml(staging / f"{site}.yaml", site, data_root, out / DATALIST)
    write_csv(staging / f"{REPORT}.csv", cases, files)
    title = f"Preparation of site '{site}'"
    write_markdown(staging / f"{REPORT}.md", title, dict(settings), cases, [str(path) for path in stray])


def entry(case: Case, data_root: Path, out: Path, staging: Path) -> dict[str, str]:
    """Return the datalist entry of a case: ``image``, ``label`` if there is a mask, ``patient``."""

    def relative(path: Path) -> str:
        final = out / path.relative_to(staging) if path.is_relative_to(staging) else path
        return final.relative_to(data_root).as_posix()

    label = {"label": relative(case.mask)} if case.mask else {}
    return {"image": relative(case.image), **label, "patient": case.patient}


def write_datalist(path: Path, cases: Sequence[Case], files: Mapping[str, Mapping[str, str]]) -> None:
    """Write the MSD-style JSON; an ``unlabeled`` entry carries no label even when a mask exists."""
    content: dict[str, list[dict[str, str]]] = {}
    for name in LISTS:
        entries = [dict(files[case.case]) for case in cases if name in case.lists]
        if name == "unlabeled":
            entries = [{key: value for key, value in e.items() if key != "label"} for e in entries]
        if entries:
            content[name] = entries
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def write_site_yaml(path: Path, site: str, data_root: Path, datalist: Path) -> None:
    """Write a site YAML that works without changes and shows the settings that a site may change."""
    facts = {"site": site, "data_root": str(data_root), "datalist": str(datalist)}
    body = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=10_000)
    path.write_text(YAML_HEAD.format(site=site) + body + YAML_TAIL, encoding="utf-8")
