"""Masks that readers saved in the label server become training data of their site."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmed.data.datalist import list_entries, read_datalist
from fedmed.data.entry_forms import UNLABELED, ImageWithMask, Video
from fedmed.errors import DataError
from fedmed.kinds.find_kind import kind_by_look
from fedmed.labelling.correction_plan import REFUSED, TRAINING, CorrectionPlan, LabelOutcome
from fedmed.labelling.frame_corrections import FrameCorrections
from fedmed.labelling.label_origin import provenance, read_notes
from fedmed.labelling.staging import Staging
from fedmed.labelling.study_images import CORRECTED, LISTS, ending_of
from fedmed.labelling.volume_corrections import VolumeCorrections
from fedmed.labelling.work_folder import WorkFolder, uploaded
from fedmed.settings.site import SiteConfig

RECORD = "corrections.json"


@dataclass
class CorrectionResult:
    """What :func:`use_labels` did, or would do.

    Attributes:
        outcomes: one for each saved label, by id.
        unit: of their foreground.
        word: what an entry of the datalist is.
        labelled, unlabelled: entries that the site has for training afterwards.
        changed: whether the datalist or a mask is (or would be) another.
    """

    outcomes: list[LabelOutcome]
    unit: str
    word: str
    labelled: int
    unlabelled: int
    changed: bool


def use_labels(site: SiteConfig, work: WorkFolder, *, dry_run: bool = False) -> CorrectionResult:
    """Make training cases of the labels in ``labels/final`` of a work folder.

    A mask that fits its image is written to ``<data_root>/corrected_labels``, and the image's entry moves from
    ``unlabeled`` to ``training`` with its other keys. The last image of ``unlabeled`` stays there too, because training
    with both losses needs both lists. An image that is in ``training`` gets the new mask; the file that it had is kept,
    unless it was an earlier correction. Images, and patients, of ``validation`` and ``testing`` are left alone. Videos
    are treated as images are; their masks are those of single frames.

    Either everything is done or nothing: all files are written before the first one gets its name. The former datalist
    stays as ``<datalist>.before``; ``corrected_labels/corrections.json`` says when each mask was drawn and used, and
    from which model's prediction.

    Raises:
        DataError: a site whose labels are not masks of images, a damaged datalist, a folder that cannot be written, or
            training masks that would all be empty.
    """
    try:
        before = site.datalist.read_bytes()
    except OSError as error:
        raise DataError(f"the datalist {site.datalist} cannot be read ({error.strerror}); restore it") from error
    plan = _plan(site)
    notes, foreign = read_notes(work.folder), uploaded(work.folder)
    images = {key: path for key, path in work.all_images.items() if key not in foreign}
    outcomes: list[LabelOutcome] = []
    for case, label in _saved(work.folder):
        try:
            outcomes.append(plan.take(case, label, images.get(case), provenance(notes, case, label)))
        except DataError as error:
            outcomes.append(LabelOutcome(case, REFUSED, str(error)))
    if plan.masks:
        plan.require_foreground()
        if not dry_run:
            _write(site, plan, before)
    labelled, unlabelled = (len(plan.lists.get(name, [])) for name in (TRAINING, UNLABELED))
    return CorrectionResult(outcomes, plan.unit, plan.form.main, labelled, unlabelled, changed=bool(plan.masks))


def _plan(site: SiteConfig) -> CorrectionPlan:
    """The plan of a site, or DataError where no viewer draws its labels: names of classes, or tables by time."""
    content = dict(read_datalist(site.datalist))
    listed = [(name, entry) for name in LISTS for entry in list_entries(site.datalist, name)]
    if kind_by_look(content).form().main == Video.main:
        if any(isinstance(entry, Mapping) and "labels" in entry for _, entry in listed):
            raise DataError(
                f"{site.site}: {site.datalist} lists videos with tables. A table covers its video from the beginning "
                "to the end, and what a reader saves is of single frames, so nothing was changed. Write what the "
                "frames show into the video's table"
            )
        return FrameCorrections(site, content)
    if any(isinstance(entry, Mapping) and ImageWithMask().wrong(name, "", entry) for name, entry in listed):
        raise DataError(
            f"{site.site}: the labels in {site.datalist} are names of classes, and what readers draw are masks. Write "
            f"an image's class into the datalist: move its entry from '{UNLABELED}' to '{TRAINING}' and add \"label\""
        )
    return VolumeCorrections(site, content)


def _saved(folder: Path) -> list[tuple[str, Path]]:
    """Id and file of each final label; of several files with one id, the newest."""
    files = [path for path in folder.glob("labels/final/[!.]*") if path.is_file()]
    files.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    endings = [ending_of(path.name) or "".join(path.suffixes) for path in files]
    return sorted({path.name.removesuffix(end): path for path, end in zip(files, endings, strict=True)}.items())


def _write(site: SiteConfig, plan: CorrectionPlan, before: bytes) -> None:
    datalist = site.datalist.resolve()  # a link stays a link
    record_path = site.data_root / CORRECTED / RECORD
    try:
        record = json.loads(record_path.read_text(encoding="utf-8")) if record_path.is_file() else []
        with Staging() as staging:
            for label, content in plan.masks.items():
                staging.add(site.data_root / label, content, like=datalist)
            staging.add(datalist.with_name(f"{datalist.name}.before"), before, like=datalist)
            staging.add(datalist, _json(plan.lists), like=datalist)
            staging.add(record_path, _json([*record, *plan.record]), like=datalist)
            if datalist.read_bytes() != before:
                raise DataError(f"{datalist} was changed by something else meanwhile; nothing was done, run again")
            staging.commit()
    except (OSError, ValueError) as error:
        raise DataError(
            f"{site.site}: the corrected masks cannot be written to {site.data_root} and {datalist.parent} ({error}); "
            "free some space, or run this as a user who may write there. The datalist is unchanged"
        ) from error


def _json(content: Any) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
