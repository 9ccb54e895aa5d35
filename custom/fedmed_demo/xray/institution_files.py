"""Write one institution's images and datalists: findings, second visits, and the halves for two nodes."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from fedmed.data.prepare.split import apportion
from fedmed.seeds import derive_seed
from fedmed_demo.xray.chest_xray import draw_person, radiograph
from fedmed_demo.xray.findings import CLASSES
from fedmed_demo.xray.image_files import Header, save
from fedmed_demo.xray.institutions import HALVES, Institution

TWICE = 0.12  # share of the patients with two images
HALVED = ("training", "unlabeled")

Entry = dict[str, str]
Lists = dict[str, list[list[Entry]]]  # list -> patients -> entries


def fill(site: Institution, folder: Path, seed: int, threads: int) -> None:
    """Write all images of an institution into an empty folder, the datalist of each half and, last, the full one."""
    people = roster(site, seed)
    with ThreadPoolExecutor(threads) as pool:
        written = list(pool.map(lambda person: write_patient(site, folder, seed, *person[1:]), people))
    datalist: Lists = {name: [] for name in site.counts}
    for (name, _, finding), entries in zip(people, written, strict=True):
        label = {} if name == "unlabeled" else {"label": finding}
        datalist[name].append([{**entry, **label} for entry in entries])
    for half in HALVES:
        _write(folder / f"datalist_{half}.json", _half(datalist, half))
    _write(folder / "datalist.json", datalist)


def roster(site: Institution, seed: int) -> list[tuple[str, str, str]]:
    """(list, patient, finding) of every patient; each list has the institution's prevalences, as near as possible."""
    people = []
    for name, count in site.counts.items():
        drawn = [c for c, n in zip(CLASSES, apportion(count, site.prevalence), strict=True) for _ in range(n)]
        rng = np.random.default_rng(derive_seed(seed, "chest_xray", site.name, name, "findings"))
        people += [(name, drawn[i]) for i in rng.permutation(count)]
    return [(name, f"{site.prefix}-{number:04d}", finding) for number, (name, finding) in enumerate(people, 1)]


def write_patient(site: Institution, folder: Path, seed: int, patient: str, finding: str) -> list[Entry]:
    """Expose one patient once or twice, write the images and return their datalist entries, labels left out."""
    rng = np.random.default_rng(derive_seed(seed, "chest_xray", site.name, patient, "visits"))
    kind = site.files[int(rng.integers(len(site.files)))]
    person = draw_person(site, patient, finding, seed)
    entries = []
    for number in range(2 if rng.random() < TWICE else 1):
        made = radiograph(person, number, seed)
        uid = derive_seed(seed, "chest_xray", patient, number)
        header = Header(patient, number, uid, made.pixel * person.thorax.sitter.size, made.position)
        entries.append({"image": save(made.image, folder, f"{patient}_{number}", kind, header), "patient": patient})
    return entries


def _half(datalist: Lists, half: int) -> Lists:
    """Every second patient of the lists that are trained on, for each finding separately; the other lists in full."""
    halved = {}
    for name, patients in datalist.items():
        if name in HALVED:
            ordered = sorted(patients, key=lambda entries: entries[0].get("label", ""))
            chosen = {entries[0]["patient"] for entries in ordered[half - 1 :: len(HALVES)]}
            patients = [entries for entries in patients if entries[0]["patient"] in chosen]
        halved[name] = patients
    return halved


def _write(path: Path, datalist: Lists) -> None:
    flat = {name: [entry for entries in patients for entry in entries] for name, patients in datalist.items()}
    path.write_text(json.dumps(flat, indent=1) + "\n")
