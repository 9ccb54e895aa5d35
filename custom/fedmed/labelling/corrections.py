"""Masks that readers saved in the label server become training data of their site."""

import contextlib
import copy
import io
import json
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from fedmed.data.datalist import UNLABELED, MaskEntry, Video, list_entries, read_datalist
from fedmed.data.video.folder_source import FrameFolder
from fedmed.data.video.frame_masks import picture
from fedmed.errors import DataError
from fedmed.kinds.find_kind import kind_by_look
from fedmed.labelling.correction_plan import NEW, REFUSED, REPLACED, TRAINING, CorrectionPlan, DrawnMask, LabelOutcome
from fedmed.labelling.masks import PNG, mask_bytes, read_frame_mask, read_grid, read_mask, read_nifti, volume_ml
from fedmed.labelling.ranking import STORED
from fedmed.labelling.studies import WorkFolder, plain_name, uploaded
from fedmed.labelling.views import CORRECTED, LISTS, ending_of
from fedmed.settings.site import SiteConfig

RECORD = "corrections.json"
DATASTORE = "datastore_v2.json"  # MONAI Label's own notes


@dataclass
class CorrectionResult:
    """Result of :func:`use_labels`, or of a dry run of it.

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
    content = copy.deepcopy(dict(read_datalist(site.datalist)))
    listed = [(name, entry) for name in LISTS for entry in list_entries(site.datalist, name)]
    if kind_by_look(content).form().main == Video.main:
        if any(isinstance(entry, Mapping) and "labels" in entry for _, entry in listed):
            raise DataError(
                f"{site.site}: {site.datalist} lists videos with tables. A table covers its video from the beginning "
                "to the end, and what a reader saves is of single frames, so nothing was changed. Write what the "
                "frames show into the video's table"
            )
        return FrameCorrections(site, content)
    if any(isinstance(entry, Mapping) and MaskEntry().wrong(name, "", entry) for name, entry in listed):
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


class FrameCorrections(CorrectionPlan):
    """An entry names a video and a folder of masks, each called after the time of its frame.

    The folder that a video had stays as it is: its masks are copied into the corrected one.
    """

    form = Video(labels=False, masks=True)
    key = "masks"
    unit = "% of the frame"
    healthy = "a frame that shows nothing"

    def read(self, label: Path, image: Path) -> DrawnMask:
        values = read_frame_mask(label, image)
        return DrawnMask(values, image, 100 * float((values != 0).mean()), self._file(image))

    def is_same(self, former: str, mask: DrawnMask) -> bool:
        file = f"{former}/{mask.file}"
        try:
            earlier = picture(io.BytesIO(self.masks[file]) if file in self.masks else self.site.data_root / file)
        except DataError:
            return False
        return bool(np.array_equal(earlier, mask.values))

    def put(self, target: str, former: str | None, mask: DrawnMask) -> str:
        file = mask.file
        had = former and (f"{former}/{file}" in self.masks or (self.site.data_root / former / file).is_file())
        if former and former != target:
            for other in self._files(former):
                self.masks[f"{target}/{other.name}"] = other.read_bytes()
                self.foreground |= other.name != file and self.has_foreground(other)
        content = io.BytesIO()
        Image.fromarray(mask.values).save(content, "PNG")
        self.masks[f"{target}/{file}"] = content.getvalue()
        return REPLACED if had else NEW

    def name_of(self, case: str, entry: Mapping[str, Any]) -> str:
        return plain_name(Path(entry["video"]).name)

    def kept(self) -> Iterator[Path]:
        folders = (entry["masks"] for entry in self.lists[TRAINING])
        return (file for one in folders for file in self._files(one) if f"{one}/{file.name}" not in self.masks)

    def has_foreground(self, file: Path) -> bool:
        try:
            return bool(picture(file).any())
        except DataError:
            return False

    def place_of(self, image: Path) -> str:
        folder = Path(os.path.realpath(image.parent))  # a table may list frames of folders in the video's own
        return next((place for place in self._places.values() if folder.is_relative_to(place)), str(folder))

    def _files(self, masks: str) -> list[Path]:
        folder = self.site.data_root / masks  # is not there before the plan is carried out
        return sorted(path for path in folder.glob("*") if path.suffix.lower() == PNG)

    def _file(self, image: Path) -> str:
        """Name of a frame's mask; DataError where nothing tells the frame's time."""
        video = self.place_of(image)
        name = os.path.relpath(os.path.join(os.path.realpath(image.parent), image.name), video)
        listed = FrameFolder(Path(video)).listed
        second = next((second for file, second in listed if os.path.normpath(file) == name), None)
        if second is None:
            raise DataError(f"{name} is not among the frames that {video} lists; correct its table")
        return f"{round(second * 1000):08d}.png"


class VolumeCorrections(CorrectionPlan):
    """An entry names a scan and the file of its mask, which lies on the scan's grid."""

    form = MaskEntry()
    key = "label"
    unit = "ml"
    healthy = "a scan without disease"

    def read(self, label: Path, image: Path) -> DrawnMask:
        shape, affine = read_grid(image)
        values = read_mask(label, shape, affine)
        return DrawnMask(values, image, volume_ml(values, affine))

    def is_same(self, former: str, mask: DrawnMask) -> bool:
        try:
            return bool(np.array_equal(read_mask(self.site.data_root / former, *read_grid(mask.image)), mask.values))
        except DataError:
            return False

    def put(self, target: str, former: str | None, mask: DrawnMask) -> str:
        self.masks[target] = mask_bytes(mask.values, read_grid(mask.image)[1])
        return REPLACED if former else NEW

    def name_of(self, case: str, entry: Mapping[str, Any]) -> str:
        return f"{case}.nii.gz"

    def kept(self) -> Iterator[Path]:
        labels = (entry["label"] for entry in self.lists[TRAINING])
        return (self.site.data_root / label for label in labels if label not in self.masks)

    def has_foreground(self, file: Path) -> bool:
        try:
            return bool((read_nifti(file)[0] != 0).any())
        except DataError:
            return False


class Staging(contextlib.ExitStack):
    """Files on the disk under temporary names beside those that they will replace.

    A full disk or a folder that cannot be written shows while they are written, when nothing has changed yet. Use it
    as a context manager: what is not committed is removed.
    """

    def __init__(self) -> None:
        super().__init__()
        self._files: list[tuple[Path, Path]] = []

    def add(self, path: Path, content: bytes, like: Path) -> None:
        """Write ``content`` for ``path``; whoever may read ``like`` may read it.

        Raises:
            OSError: no space, or no right to write.
        """
        for folder in reversed(path.parents):
            if not folder.is_dir():
                folder.mkdir()
                self.callback(_remove_if_empty, folder)
                folder.chmod(stat.S_IMODE(like.parent.stat().st_mode) | stat.S_IRWXU)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
        temporary = Path(name)
        self.callback(temporary.unlink, missing_ok=True)
        self._files.append((temporary, path))
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(stat.S_IMODE(like.stat().st_mode) & 0o666 | stat.S_IRUSR | stat.S_IWUSR)

    def commit(self) -> None:
        """Put the files in their places, in the order in which they were added; each is a rename."""
        for temporary, path in self._files:
            os.replace(temporary, path)


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()


def read_notes(folder: Path) -> dict[str, Any]:
    """Read MONAI Label's notes on each image of a work folder; empty where there are no readable ones."""
    try:
        notes = json.loads((folder / DATASTORE).read_text(encoding="utf-8"))["objects"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    return notes if isinstance(notes, dict) else {}


def provenance(notes: Mapping[str, Any], image: str, label: Path) -> dict[str, str]:
    """Return ``drawn`` (ISO time, UTC) and ``model`` of a label.

    The model is what the client named when it saved the label; else the models that the server served at that time;
    else the one by whose score the image was chosen; else ``unknown``.
    """
    info = _info(notes, image, "labels", "final")
    scores, served = _mapping(_info(notes, image, "image").get(STORED)), _mapping(info.get("served"))
    chosen = {entry["model"] for entry in scores.values() if "model" in entry}
    serving = {f"{name} {version}".strip() for name, version in served.items()}
    model = str(info.get("model") or ", ".join(sorted(serving or chosen)) or "unknown")
    stamp = ts if isinstance(ts := info.get("ts"), int) else label.stat().st_mtime
    return {"drawn": datetime.fromtimestamp(stamp, UTC).isoformat(timespec="seconds"), "model": model}


def _info(notes: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    value: Any = notes
    for key in (*path, "info"):
        value = _mapping(value).get(key)
    return _mapping(value)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
