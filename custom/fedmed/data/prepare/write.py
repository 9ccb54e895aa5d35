"""Write what was prepared, and know one's own results of an earlier time."""

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import yaml

from fedmed.data.datalist import LABEL_KEYS, UNLABELED, UnlabelledEntry, load_datalist
from fedmed.data.image_size import UNREADABLE, nifti_header
from fedmed.data.prepare.case import Checked
from fedmed.data.prepare.folder import DATALIST, PREPARED, REPORT, publish, visible_files
from fedmed.data.prepare.report import LISTS, Prepared, page, row_of, table
from fedmed.errors import DataError

YAML_HEAD = """\
# Site '{site}'. Put this file where the federation looks for it (a provisioned site: local/fedmed_site.yaml in its
# workspace; elsewhere: $FEDMED_HOME/sites/{site}.yaml, or this folder as $FEDMED_HOME/sites/{site}).
"""
YAML_TAIL = """\
device: auto     # auto | cpu | cuda | cuda:1
threads: 2       # CPU threads of one process
workers: 0       # processes that load images
amp: false       # mixed precision, GPU only
# cache_dir: /fast/disk/fedmed-cache   # preprocessed cases, readable by the owner only
# privacy: {allowed_extras: [fingerprint]}   # lets a study compare rounded numbers of the images: docs/fingerprint.md
"""
# Name of a folder → the file that lies beside it, and what wrote both.
WRITTEN = {
    PREPARED: (f"{REPORT}.csv", "an earlier preparation"),
    **dict.fromkeys(("heat_maps", "overlays", "ribbons", "timelines"), ("predictions.csv", "an earlier inference")),
    "labels": ("datastore_v2.json", "MONAI Label"),
}


def write_site(prepared: Prepared, staging: Path, site: str, settings: Mapping[str, object]) -> None:
    """Write a site's files into ``staging``, check them, and turn it into the site's folder.

    Raises:
        DataError: they are not fit for training, or the folder holds a site of another kind of images.
    """
    write_files(prepared, staging, site, settings)
    before, now = _kind(prepared.out / DATALIST), _kind(staging / DATALIST)
    if before not in ("", now):
        raise DataError(
            f"{prepared.out} holds a site of {before}, and this one is of {now}; give another name with --site, or "
            "delete the folder"
        )
    root = staging if prepared.data_root == prepared.out else prepared.data_root
    require_readable(staging / DATALIST, root, prepared.classes, prepared.form)
    publish(staging, prepared.out)


def _kind(datalist: Path) -> str:
    """Images of a site as its datalist names them; empty where there is none that can be read."""
    try:
        first = next(entry for entries in json.loads(datalist.read_text("utf-8")).values() for entry in entries)
        return "videos" if "video" in first else "volumes" if ".nii" in first["image"] else "pictures"
    except (OSError, ValueError, AttributeError, KeyError, TypeError, StopIteration):
        return ""


def require_readable(
    datalist: Path, data_root: Path, classes: Sequence[str] | None = None, form: UnlabelledEntry | None = None
) -> None:
    """Read a written datalist as training does, which raises DataError for what it does not accept."""
    for name in LISTS:
        load_datalist(data_root, datalist, name, required=False, classes=classes, form=form)


def write_files(prepared: Prepared, staging: Path, site: str, settings: Mapping[str, object]) -> None:
    """Write datalist, site YAML and both reports into ``staging``, with the paths they will have in the site."""
    cases, out = prepared.cases, prepared.out
    entries = {case.case: entry(case, prepared.data_root, out, staging) for case in cases if case.lists}
    write_datalist(staging / DATALIST, cases, entries)
    write_site_yaml(staging / f"{site}.yaml", site, prepared.data_root, out / DATALIST)
    rows = (row_of(case, entries.get(case.case, {})) for case in cases)
    (staging / f"{REPORT}.csv").write_bytes(table(prepared.columns, rows))
    text = page(prepared, f"Preparation of site '{site}'", settings)
    (staging / f"{REPORT}.md").write_text(text, encoding="utf-8", errors="backslashreplace")


def entry(case: Checked, data_root: Path, out: Path, staging: Path) -> dict[str, str]:
    """Return the datalist entry of a case: what it names, such as ``image`` and ``label``, and ``patient``."""

    def relative(path: Path) -> str:
        final = out / path.relative_to(staging) if path.is_relative_to(staging) else path
        return final.relative_to(data_root).as_posix()

    named = {name: relative(value) if isinstance(value, Path) else value for name, value in case.named().items()}
    return {name: value for name, value in named.items() if value} | {"patient": case.patient}


def write_datalist(path: Path, cases: Sequence[Checked], entries: Mapping[str, Mapping[str, str]]) -> None:
    """Write the MSD-style JSON; an ``unlabeled`` entry carries no label even when there is one."""
    content: dict[str, list[dict[str, str]]] = {}
    for name in LISTS:
        dropped = LABEL_KEYS if name == UNLABELED else ()
        listed = [entries[case.case] for case in cases if name in case.lists]
        content[name] = [{key: value for key, value in one.items() if key not in dropped} for one in listed]
    content = {name: listed for name, listed in content.items() if listed}
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def write_site_yaml(path: Path, site: str, data_root: Path, datalist: Path) -> None:
    """Write a site YAML that works without changes and shows the settings that a site may change."""
    facts = {"site": site, "data_root": str(data_root), "datalist": str(datalist)}
    body = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=10_000)
    path.write_text(YAML_HEAD.format(site=site) + body + YAML_TAIL, encoding="utf-8")


def find_results(folder: Path, skip: Collection[Path] = ()) -> dict[Path, str]:
    """Folders of results at any depth of ``folder`` → what wrote them; those of ``skip`` are not entered.

    ``folder`` itself is what a person asks for. DataError for one that cannot be listed.
    """
    folders = {}
    for here, _ in visible_files(folder, {Path(place).resolve() for place in skip}):
        mark, writer = WRITTEN.get(here.name, ("", ""))
        if mark and here != folder and (here.parent / mark).is_file():
            folders[here] = writer
    return folders


def inference_masks(scans: Collection[Path]) -> list[Path]:
    """Of NIfTI files those of bytes whose names begin as another's, such as ``a_covid.nii.gz`` beside ``a.nii``.

    Inference writes its masks so; a CT, which has values below 0, is not stored so.
    """
    named = {path.parent / _stem(path) for path in scans}
    return [path for path in scans if any(path.parent / stem in named for stem in _starts(path)) and _of_bytes(path)]


def results_left_out(folder: Path, folders: Mapping[Path, str], masks: Collection[Path] = ()) -> list[str]:
    """One line for each writer of results that are left out, with their number and the first place."""
    places = defaultdict(list)
    for place, writer in folders.items():
        places[writer].append(place)
    lines = []
    for writer, written in sorted(places.items()):
        files = sum(len(names) for place in written for _, names in visible_files(place, ()))
        shown = f"{written[0].relative_to(folder)}{', …' if len(written) > 1 else ''}"
        lines.append(f"{files} × of {writer} ({shown}): results, and no images of patients")
    if masks:
        first, *more = sorted(masks)
        shown = f"{first.name}{', …' if more else ''}"
        lines.append(f"{len(masks)} × masks called as a scan beside them ({shown}): as inference writes them; "
                     "--mask-suffix takes those that people drew")  # fmt: skip
    return lines


def _stem(path: Path) -> str:
    return path.name[: path.name.lower().rindex(".nii")]


def _starts(path: Path) -> list[str]:
    parts = _stem(path).split("_")
    return ["_".join(parts[:count]) for count in range(1, len(parts))]


def _of_bytes(path: Path) -> bool:
    try:
        return nifti_header(path).get_data_dtype() == np.uint8
    except UNREADABLE:
        return False  # its inspection says so
