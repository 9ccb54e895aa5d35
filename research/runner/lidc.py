"""Make a federation of lung-nodule crops (LIDC-IDRI) whose sites differ in slice spacing.

LIDC does not name hospitals, so the sites stand for four scanning protocols. The crops are centred on a nodule: a Dice
on them is higher than on full scans.
"""

import statistics
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedmed.data.datalist import LABELLED_DATALIST
from fedmed.data.prepare.case import Case
from fedmed.data.prepare.ct_find import find_volumes
from fedmed.data.prepare.ct_inspect import inspect_all, slice_spacing
from fedmed.data.prepare.ct_site import fill_lists, prepared_volumes, require_usable
from fedmed.data.prepare.folder import DATALIST, staging_for
from fedmed.data.prepare.pool import Track
from fedmed.data.prepare.report import Rows, listed
from fedmed.data.prepare.split import assign
from fedmed.data.prepare.write import entry, require_readable, write_datalist, write_files, write_site_yaml
from fedmed.data.structure import three_digits
from fedmed.errors import DataError
from fedmed.files import close_tree, data_root

SPLIT = (0.6, 0.2, 0.2)  # of the patients of a site that is trained on
PATIENT = r"^(.+)_R_\d+$"
LOWEST_PEAK = -700.0  # HU; a crop inside a lung may hold nothing brighter than ground glass


@dataclass(frozen=True)
class Protocol:
    """One site: slice spacing in (above, up_to] mm, its role, and its split (training, validation, testing)."""

    site: str
    above: float
    up_to: float
    role: str
    fractions: tuple[float, float, float]


PROTOCOLS = (
    Protocol("lidc_thin", 0.0, 1.05, "unlabelled", SPLIT),
    Protocol("lidc_mid_a", 1.05, 1.55, "labelled", (0.0, 0.0, 1.0)),
    Protocol("lidc_mid_b", 1.55, 2.15, "labelled", (0.0, 0.0, 1.0)),
    Protocol("lidc_thick", 2.15, float("inf"), "labelled", SPLIT),
)


def default_data() -> Path:
    """``ct_lidc_nodules`` in ``$FEDMED_HOME/data``, or in ``../shared/data`` next to the checkout."""
    return data_root("../shared/data") / "ct_lidc_nodules"


def prepare_lidc(
    data: Path, out: Path, seed: int = 0, workers: int = 1, track: Track[Case] | None = None
) -> dict[str, list[Case]]:
    """Write the four sites below ``out``, replacing those that are there; return site → its cases.

    Each ``out/<site>`` is a prepared site. Next to its ``datalist.json`` is ``datalist_labelled.json``, which divides
    all of its patients among labelled ``training``, ``validation`` and ``testing``, so that any site can be the one
    that trains. At ``lidc_thick`` both are equal; at ``lidc_thin`` ``testing`` is the same. ``out/site_configs`` holds
    the four site YAMLs, ``out/site_configs_labelled`` the same with ``lidc_thin`` fully labelled.

    Args:
        data: folder with ``image`` and ``mask``.
        out, seed: folder of the sites; seed of the splits.
        workers, track: see :func:`fedmed.data.prepare.pool.run_all`.

    Raises:
        DataError: missing data, or a group without usable cases; nothing is written.
    """
    data, out = Path(data).expanduser().resolve(), Path(out).expanduser().resolve()
    if not (data / "image").is_dir() or not (data / "mask").is_dir():
        raise DataError(f"{data} has no folders 'image' and 'mask'; give the folder of the nodule crops")
    sources, _ = find_volumes(data / "image", data / "mask", patient_pattern=PATIENT)
    with staging_for(out) as staging:
        sites = group(inspect_all(sources, staging / "unused", workers, LOWEST_PEAK, track))
        for protocol in PROTOCOLS:
            _write_site(staging, out, protocol, data, sites[protocol.site], seed)
        _replace(staging, out)
    return sites


def group(cases: Sequence[Case]) -> dict[str, list[Case]]:
    """Give each case to the site of its slice spacing.

    A patient whose crops fall into several groups belongs to the one with most of them (at a tie, to the thicker one);
    the other crops are refused, so that no patient is at two sites. Unreadable cases appear at the first site.
    """
    votes: dict[str, Counter[str]] = defaultdict(Counter)
    for case in cases:
        if case.spacing:
            votes[case.patient][_site_of(case)] += 1
    order = [protocol.site for protocol in PROTOCOLS]
    home = {who: max(count, key=lambda site: (count[site], order.index(site))) for who, count in votes.items()}
    sites: dict[str, list[Case]] = {site: [] for site in order}
    for case in cases:
        site = home.get(case.patient, order[0])
        if case.usable and _site_of(case) != site:
            case.faults.append(f"slice spacing {slice_spacing(case):g} mm, but the patient's other crops are at {site}")
        sites[site].append(case)
    return sites


def numbers(sites: dict[str, list[Case]]) -> Rows:
    """Rows (site, list, cases, patients, slice spacing in mm, median nodule volume in ml), a heading first."""
    rows: Rows = [("site", "list", "cases", "patients", "slice spacing (mm)", "nodule, median (ml)")]
    for site, cases in sites.items():
        for name, members in listed(cases).items():
            spacings = [slice_spacing(case) for case in members]
            volume = statistics.median(case.mask_ml for case in members if case.mask_ml is not None)
            patients = len({case.patient for case in members})
            span = f"{min(spacings):g} … {max(spacings):g}"
            rows.append((site, name, str(len(members)), str(patients), span, three_digits(volume)))
    return rows


def _site_of(case: Case) -> str:
    return next(p.site for p in PROTOCOLS if p.above < slice_spacing(case) <= p.up_to)


def _write_site(staging: Path, out: Path, protocol: Protocol, data: Path, cases: list[Case], seed: int) -> None:
    site, folder, final = protocol.site, staging / protocol.site, out / protocol.site
    folder.mkdir()
    # The datalist in which every patient has masks; the cases' own lists do not change.
    assigned = assign(cases, "labelled", SPLIT, seed)
    shown = [replace(case, lists=[assigned[case.case]]) for case in cases if case.case in assigned]
    entries = {case.case: entry(case, data, final, folder) for case in shown}
    write_datalist(folder / LABELLED_DATALIST, shown, entries)
    labelled = LABELLED_DATALIST if protocol.role == "unlabelled" else DATALIST
    fill_lists(cases, protocol.role, protocol.fractions, seed)
    require_usable(cases, protocol.role, protocol.fractions, data)
    spacing = f"{protocol.above:g} to {protocol.up_to:g} mm"
    settings = {"data": data, "slice spacing": spacing, "role": protocol.role, "split": protocol.fractions}
    write_files(prepared_volumes(final, data, cases), folder, site, {**settings, "seed": seed})
    for datalist in (DATALIST, LABELLED_DATALIST):
        require_readable(folder / datalist, data)
    for configs, datalist in {"site_configs": DATALIST, "site_configs_labelled": labelled}.items():
        (staging / configs).mkdir(exist_ok=True)
        write_site_yaml(staging / configs / f"{site}.yaml", site, data, final / datalist)


def _replace(staging: Path, out: Path) -> None:
    """Rename ``staging`` to ``out``; in a folder that exists, only the folders of this federation are replaced."""
    close_tree(staging)
    if not out.exists():
        staging.rename(out)
        return
    for path in sorted(staging.iterdir()):
        if (out / path.name).exists():
            (out / path.name).rename(staging / f"{path.name}.old")
        path.rename(out / path.name)
