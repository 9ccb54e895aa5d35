"""Write one hospital's recordings, tables, masks and datalist."""

import csv
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np

from fedmed.data.datalist import LABELLED_DATALIST, UNLABELED
from fedmed.data.operation_names import PHASES, TOOLS
from fedmed.data.video.file_source import write_movie
from fedmed.data.video.folder_source import SINGLES
from fedmed.seeds import derive_seed
from fedmed_demo.surgery.procedure_vector import FILE, procedure_vector
from fedmed_demo.surgery.profile import HospitalProfile
from fedmed_demo.surgery.recording import DrawnRecording, Frame, Room

Entry = dict[str, str]
SYNTHETIC = "synthetic"  # a list beside those of patients: pictures of a simulator for training
SAME = 1e-6  # seconds


def fill(hospital: HospitalProfile, folder: Path, seed: int, threads: int) -> None:
    """Write a hospital into an empty folder: ``videos``, ``labels``, ``masks`` and, last, ``datalist.json``.

    A hospital of single pictures has ``images`` in place of ``videos``; one with a simulator has both, and the list
    ``synthetic``. One with a ``procedure`` has a vector of its name in ``indicator.txt``. One that pools others has
    their recordings for training and validation, the same as there.

    Tables are written of ``unlabeled`` too. ``datalist_labelled.json`` has them: for experiments in which every video
    may have labels, those of ``unlabeled`` train there, and the last of them validate, as the profile says.
    """
    for name in {place(one) for one in (hospital, hospital.simulator) if one} | {"labels", "masks"}:
        (folder / name).mkdir()
    people = [
        (one, *person)
        for one in hospital.members or (hospital,)
        for person in roster(one)
        if person[0] in hospital.counts
    ]
    with ThreadPoolExecutor(threads) as pool:
        written = list(pool.map(lambda person: write_patient(person[0], folder, seed, *person[1:]), people))
    lists: dict[str, list[Entry]] = {name: [] for name in hospital.counts}
    for (_, name, _), entry in zip(people, written, strict=True):
        lists[name].append(entry)
    if hospital.simulator:
        lists[SYNTHETIC] = [write_patient(hospital.simulator, folder, seed, *one) for one in roster(hospital.simulator)
                            if one[0] == "training"]  # fmt: skip
    if hospital.labels:
        _write_lists(folder / LABELLED_DATALIST, _labelled(hospital, lists))
    if hospital.procedure:
        numbers = "\n".join(f"{value:.6f}" for value in procedure_vector(hospital.procedure))
        (folder / FILE).write_text(numbers + "\n", encoding="utf-8")
    _write_lists(folder / "datalist.json", lists)


def _labelled(hospital: HospitalProfile, lists: dict[str, list[Entry]]) -> dict[str, list[Entry]]:
    further = [{**entry, "labels": f"labels/{entry['patient']}.csv"} for entry in lists.get(UNLABELED, [])]
    training = len(further) - (hospital.lists[UNLABELED].validates if further else 0)
    merged = {name: list(lists.get(name, [])) for name in ("training", "validation", "testing")}
    merged["training"] += further[:training]
    merged["validation"] += further[training:]
    return {name: entries for name, entries in merged.items() if entries}


def _write_lists(path: Path, lists: dict[str, list[Entry]]) -> None:
    path.write_text(json.dumps(lists, indent=1) + "\n", encoding="utf-8")


def place(hospital: HospitalProfile) -> str:
    """The folder of its recordings."""
    return "images" if hospital.pictures else "videos"


def roster(hospital: HospitalProfile) -> list[tuple[str, str]]:
    """(list, patient) of every recording; each is of another patient."""
    names = [name for name, one in hospital.lists.items() for _ in range(one.videos)]
    return [(name, f"{hospital.prefix}-{number:03d}") for number, name in enumerate(names, 1)]


def write_patient(hospital: HospitalProfile, folder: Path, seed: int, name: str, patient: str) -> Entry:
    """Write one recording and its truth; return its entry of the datalist.

    ``labels/<patient>.csv`` has a row for each whole second: ``second``, then ``phase`` (a name in ``PHASES``) and
    ``TOOLS`` (0 or 1: seen in the frame of that second), as the profile says. ``masks/<patient>/<time>.png`` is the
    frame at that time in milliseconds, eight digits: 0 background, 1 shaft, 2 wrist, 3 jaw or another working end; or
    0 and 1. Entries of ``unlabeled`` have neither. A hospital of single pictures: see :func:`write_pictures`.
    """
    seconds = hospital.lists[name].seconds or hospital.course.seconds
    hospital = hospital.model_copy(update={"course": hospital.course.model_copy(update={"seconds": seconds})})
    recording = DrawnRecording(hospital, patient, seed, hospital.lists[name].without)
    if hospital.pictures:
        return write_pictures(recording, folder)
    entry = {"video": f"videos/{patient}.mp4", "patient": patient}
    rows: list[list[object]] = []
    masks = None
    if name != UNLABELED:
        if hospital.labels:
            entry["labels"] = f"labels/{patient}.csv"
        if hospital.parts != "none":
            entry["masks"], masks = f"masks/{patient}/", folder / "masks" / patient
            masks.mkdir()
    frames = _watched(recording, rows, masks)
    write_movie(folder / entry["video"], frames, hospital.rate, recording.times if hospital.rate_swing else None)
    if hospital.labels:
        with (folder / f"labels/{patient}.csv").open("w", newline="", encoding="utf-8") as stream:
            header = ["second", *["phase"] * ("phase" in hospital.labels), *TOOLS * ("tools" in hospital.labels)]
            csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    return entry


def write_pictures(recording: DrawnRecording, folder: Path) -> Entry:
    """Write single pictures of one patient in drawn order, and a mask of each; return its entry of the datalist.

    ``images/<patient>/00003000.jpg`` has the mask ``masks/<patient>/00003000.png``; ``pictures.csv`` lists them.
    """
    hospital, patient, room = recording.hospital, recording.patient, Room(recording)
    rng = np.random.default_rng(derive_seed(recording.seed, "pictures", hospital.name, patient))
    times = np.sort(rng.choice(recording.times, hospital.pictures, replace=False))
    images, masks = folder / "images" / patient, folder / "masks" / patient
    images.mkdir()
    masks.mkdir()
    order = rng.permutation(hospital.pictures).tolist()
    for number, (second, time) in enumerate(zip(order, times.tolist(), strict=True)):
        frame, name = room.frame(number, time), f"{1000 * second:08d}"
        cv2.imwrite(str(images / f"{name}.jpg"), frame.image[..., ::-1], (cv2.IMWRITE_JPEG_QUALITY, 92))
        cv2.imwrite(str(masks / f"{name}.png"), hospital.part_values(frame.mask))
    names = [f"{1000 * second:08d}.jpg" for second in sorted(order)]
    (images / SINGLES).write_text("\n".join(["file", *names, ""]), encoding="utf-8")
    return {"video": f"images/{patient}", "patient": patient, "masks": f"masks/{patient}/"}


def _watched(recording: DrawnRecording, rows: list[list[object]], masks: Path | None) -> Iterator[np.ndarray]:
    """The frames' images; on the way, rows for the table and files of masks."""
    hospital, times = recording.hospital, recording.times
    masked = mask_frames(recording)
    shown = np.searchsorted(times, np.arange(int(recording.operation.seconds)) + SAME, side="right") - 1
    for number, frame in enumerate(recording):
        rows += [_row(frame, int(second), hospital) for second in np.flatnonzero(shown == number)]
        if masks and number in masked:
            cv2.imwrite(str(masks / f"{round(1000 * frame.time):08d}.png"), hospital.part_values(frame.mask))
        yield frame.image


def mask_frames(recording: DrawnRecording) -> set[int]:
    """Numbers of the frames that have masks: every ``mask_every`` seconds, from half of that on."""
    every = recording.hospital.mask_every
    wanted = np.arange(every / 2, recording.operation.seconds, every)
    return set(np.searchsorted(recording.times[:-1], wanted - SAME).tolist())


def _row(frame: Frame, second: int, hospital: HospitalProfile) -> list[object]:
    phase = [PHASES[frame.phase]] if "phase" in hospital.labels else []
    return [second, *phase, *map(int, frame.present if "tools" in hospital.labels else ())]
