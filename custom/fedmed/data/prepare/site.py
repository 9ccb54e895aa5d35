"""Make a site of a folder of CT volumes: datalist, site YAML, report; all or nothing."""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from fedmed.data.prepare.case import Case
from fedmed.data.prepare.place import DATALIST, PREPARED, REPORT, publish, staging_for
from fedmed.data.prepare.pool import Track, inspect_all
from fedmed.data.prepare.report import LISTS, refusals, write_csv, write_markdown
from fedmed.data.prepare.scan import find_sources
from fedmed.data.prepare.split import assign
from fedmed.errors import DataError

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


@dataclass(frozen=True)
class Prepared:
    """What became of a folder: the site's folder, where its data lie, every case, and masks that fit no image."""

    out: Path
    data_root: Path
    cases: list[Case]
    stray_masks: list[Path]


def prepare_site(
    folder: Path,
    out: Path,
    site: str,
    *,
    masks: Path | None = None,
    mask_suffix: str | None = None,
    role: str | None = None,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    patient_pattern: str | None = None,
    workers: int = 1,
    copy: bool = False,
    track: Track | None = None,
) -> Prepared:
    """Check every volume below ``folder`` and write the site folder ``out``.

    NIfTI files stay where they are and the datalist points at them. When there are DICOM series (converted to NIfTI),
    or with ``copy``, all images lie in ``out/prepared`` instead.

    Args:
        folder, masks, mask_suffix, patient_pattern: see :func:`fedmed.data.prepare.scan.find_sources`.
        out: site folder; what an earlier preparation left there is replaced, all else is left alone.
        site: the site's name in the federation.
        role: ``labelled`` or ``unlabelled``; None means labelled if masks are asked for.
        fractions: training, validation, testing.
        seed: of the split.
        workers: processes that read images.
        copy: link (or copy) NIfTI files into ``out`` too.
        track: see :func:`fedmed.data.prepare.pool.inspect_all`.

    Raises:
        DataError: wrong arguments, nothing usable, or a labelled site without any foreground; nothing is written.
    """
    out = Path(out).expanduser().resolve()
    role = role or ("labelled" if masks or mask_suffix else "unlabelled")
    sources, stray = find_sources(folder, masks, mask_suffix, patient_pattern, skip=[out / PREPARED])
    if not sources:
        raise DataError(f"{folder}: no NIfTI file (.nii, .nii.gz) and no DICOM series at any depth")
    with staging_for(out) as staging:
        cases = inspect_all(sources, staging / PREPARED / "images", workers, track=track)
        fill_lists(cases, role, fractions, seed)
        require_usable(cases, role, fractions, folder)
        data_root = _data_root(cases, out, copy, any(source.dicom for source in sources))
        if data_root == out:
            _gather(cases, staging)
        settings = {"folder": folder, "masks": masks or mask_suffix, "role": role, "split": fractions, "seed": seed}
        write_files(staging, out, site, data_root, cases, settings, stray)
        publish(staging, out)
        _settle(cases, staging, out)
    return Prepared(out, data_root, cases, stray)


def fill_lists(cases: Sequence[Case], role: str, fractions: Sequence[float], seed: int) -> None:
    """Set ``lists`` of every case; a usable case that fits none gets a note."""
    assigned = assign(cases, role, fractions, seed)
    for case in cases:
        case.lists = [assigned[case.case]] if case.case in assigned else []
        if case.usable and not case.lists:
            case.notes.append("left out: without a mask, and its patient is in validation or testing")


def require_usable(cases: Sequence[Case], role: str, fractions: Sequence[float], folder: Path) -> None:
    """Raise DataError when nothing usable remains, or when a labelled site has nothing to learn from."""
    if not any(case.lists for case in cases):
        reasons = "".join(f"\n    {line}" for line in refusals(cases))
        raise DataError(f"{folder}: none of {len(cases)} volumes is usable:{reasons}")
    labelled = [case for case in cases if case.usable and case.mask_ml is not None]
    if role == "labelled" and not labelled:
        raise DataError(f"{folder}: a labelled site needs masks and none was found; give --masks or --mask-suffix")
    training = [case for case in labelled if "training" in case.lists]
    if role == "labelled" and fractions[0] > 0 and not any(case.mask_ml for case in training):
        raise DataError(f"{folder}: every training mask is empty, so there is no foreground to learn; check the masks")


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
    """Write a site YAML that works as it is and shows the settings a site may change."""
    facts = {"site": site, "data_root": str(data_root), "datalist": str(datalist)}
    body = yaml.safe_dump(facts, sort_keys=False, allow_unicode=True, width=10_000)
    path.write_text(YAML_HEAD.format(site=site) + body + YAML_TAIL, encoding="utf-8")


def _data_root(cases: Sequence[Case], out: Path, copy: bool, converted: bool) -> Path:
    """The folder all images and masks share, or ``out`` when they have to be gathered there."""
    used = [path for case in cases if case.lists for path in (case.image, case.mask) if path]
    common = Path(os.path.commonpath([path.parent for path in used]))
    return out if copy or converted or common == Path(common.anchor) else common


def _gather(cases: Sequence[Case], staging: Path) -> None:
    """Bring images and masks that lie elsewhere into the site folder: hard links if possible, else copies."""
    for case in cases:
        if case.lists:
            case.image = _link(case.image, staging, "images", case.case)
            case.mask = _link(case.mask, staging, "masks", case.case) if case.mask else None


def _settle(cases: Sequence[Case], staging: Path, out: Path) -> None:
    """Let the cases name their files where they lie now; a refused DICOM series has no file."""
    for case in cases:
        if case.image and case.image.is_relative_to(staging):
            case.image = out / case.image.relative_to(staging) if case.usable else None
        if case.mask and case.mask.is_relative_to(staging):
            case.mask = out / case.mask.relative_to(staging)


def _link(path: Path, staging: Path, kind: str, name: str) -> Path:
    if path.is_relative_to(staging):
        return path
    target = staging / PREPARED / kind / (name + ("".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix))
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(path, target)
    except OSError:  # another disk, or a file system without links
        shutil.copy2(path, target)
    return target
