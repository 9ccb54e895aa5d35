"""Make a site from a folder of recordings: datalist, tables, masks, site YAML, report; completely or not at all."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fedmed.class_paths import classes_below
from fedmed.data.datalist import LABELLED, UNLABELED, Video
from fedmed.data.prepare.case import VideoCase
from fedmed.data.prepare.clients import SiteRecordings
from fedmed.data.prepare.folder import LEFT, compile_pattern, existing, files_left, patient_in, staging_for
from fedmed.data.prepare.phase_counts import added, alone, missing, phase_counts, shares_of_phases
from fedmed.data.prepare.pool import DIED, Track, run_all
from fedmed.data.prepare.report import Prepared, Rows, listed, note_counts, refusals, require_used
from fedmed.data.prepare.split import (
    divides,
    fill_lists,
    patient_warnings,
    refuse_copies,
    refuse_shared_prefixes,
    unite_patients,
)
from fedmed.data.prepare.tool_counts import one_sided, shares_of_tools, tool_counts
from fedmed.data.prepare.video_inspect import DEFAULT, WantedVideos, prepare_video
from fedmed.data.prepare.video_layouts.layout import Layout, Recording
from fedmed.data.prepare.video_layouts.plain import INDEX
from fedmed.data.prepare.write import entry, find_results, results_left_out, write_datalist, write_site
from fedmed.data.video.frame_settings import WORDS, FrameSettings
from fedmed.data.video.label_table import unknown
from fedmed.data.video.stored_video import SpaceNeeded
from fedmed.errors import DataError

LAYOUTS = "fedmed.data.prepare.video_layouts"
PLAIN = "plain"
OF_TABLES = "a table of labels is called as its video, labels/a.csv of videos/a.mp4, or beside it"
REMEDY = "Say it in the column 'patient' of videos.csv, or with --patient-pattern"
COLUMNS = (
    *("case", "patient", "status", "list", "reason", "notes", "label", "seconds", "sizes", "masks"),
    *("white", "dark", "out_of_body", "found", "video", "labels"),
)
WHOLE = "datalist_whole.json"
IN_TURN = ("training", "testing")


def layouts() -> dict[str, type[Layout]]:
    """Name -> layout."""
    return classes_below(LAYOUTS, Layout)  # type: ignore[type-abstract]  # it returns classes and makes none


def find_recordings(folder: Path, wanted: WantedVideos) -> tuple[str, Layout, list[Recording]]:
    """The layout of a folder, by name too, and its recordings with their patients.

    Raises:
        DataError: no such folder or layout, several that fit, or no recording.
    """
    folder, known = existing(folder, "the folder of videos"), layouts()
    fitting = [name for name, layout in known.items() if name != PLAIN and layout().fits(folder)]
    if wanted.layout not in (None, *known):
        raise DataError(f"the layout '{wanted.layout}' is unknown; use one of {', '.join(known)}")
    if wanted.layout is None and len(fitting) > 1:
        raise DataError(f"{folder} looks like {' and '.join(fitting)}; say which with --layout")
    name = wanted.layout or (fitting or [PLAIN])[0]
    layout, pattern = known[name](), compile_pattern(wanted.patient_pattern)
    layout.names_rate = wanted.settings.names_rate
    known_phases = wanted.phases or layout.phases
    for phase in wanted.leave_out:
        if known_phases is not None and phase not in known_phases:
            raise DataError(f"--leave-out: {unknown('phase', phase, known_phases)}")
    recordings, results = [], find_results(folder)
    for one in layout.find(folder):
        if any(one.video.is_relative_to(place) for place in results):
            continue
        patient, unmatched = one.patient or one.stem, ""
        if pattern and not one.patient:
            patient, unmatched = patient_in(pattern, one.stem, one.case)
        said = bool(one.patient) or pattern is not None
        recordings.append(replace(one, patient=patient, fault=one.fault or unmatched, patient_said=said))
    if not recordings:
        none = f"{folder}: no video for the layout '{name}': {known[name].about}"
        raise DataError("; ".join([none, *results_left_out(folder, results)]))
    return name, layout, recordings


def prepare_video_site(
    folder: Path,
    out: Path,
    site: str,
    wanted: WantedVideos = DEFAULT,
    *,
    fractions: Sequence[float] = (0.6, 0.2, 0.2),
    seed: int = 0,
    workers: int = 1,
    copy: bool = False,
    track: Track[VideoCase] | None = None,
    client: SiteRecordings | None = None,
    own_patients: bool = False,
) -> Prepared:
    """Check every video below ``folder`` and write the site folder ``out``.

    Videos and frames stay where they are: ``out/prepared`` holds links to them, their tables and their masks.

    Args:
        folder, wanted: what is there; see :class:`WantedVideos`.
        out, site, seed, own_patients, workers, track: see :func:`fedmed.data.prepare.ct_site.prepare_site`.
        fractions: training, validation, testing, of the patients with labels.
        copy: link (hard) or copy the videos instead of pointing at them.
        client: which recordings are used; None: all.

    Raises:
        DataError: wrong arguments, a patient in two lists, or nothing usable; nothing is written.
    """
    folder, out = Path(folder).expanduser().resolve(), Path(out).expanduser().resolve()
    name, layout, recordings = find_recordings(folder, wanted)
    recordings = [one for one in recordings if not one.video.is_relative_to(out)]
    results = find_results(folder, [out])
    left = results_left_out(folder, results) + files_left(
        [folder], _read(folder, recordings), [out, *results], "" if any(one.labels for one in recordings) else OF_TABLES
    )
    if client:
        recordings = [replace(r, list=client.lists[r.case] or r.list) for r in recordings if r.case in client.lists]
    if wanted.blocks:
        recordings = [part for one in recordings for part in in_blocks(one, *wanted.blocks)]
    given = {one.case: one.list for one in recordings if one.list}
    with staging_for(out) as staging:
        work = partial(prepare_video, layout=layout, staging=staging, wanted=wanted, copy=copy)
        cases = run_all(work, recordings, workers, track, apart=True, died=lambda one: work(replace(one, fault=DIED)))
        refuse_copies(cases, "frames", "video")
        refuse_other_columns(cases)
        if not wanted.ignore:
            note_missing_labels(cases)
        united = unite_patients(cases)
        if wanted.blocks:
            for case in cases:
                case.blocks_of = case.patient
        if given:
            fill_given(cases, given, folder, shared=bool(wanted.blocks))
        else:
            labelled = name == PLAIN and not wanted.ignore and any(case.label for case in cases)
            if labelled and not own_patients and divides(fractions):
                refuse_shared_prefixes(cases, folder, "video", REMEDY)
            fill_lists(cases, fractions, seed, wanted.ignore)
        if wanted.blocks:
            list_blocks(cases, out, staging)
        require_used(cases, folder, "videos")
        if wanted.blocks or (client and client.about):
            require_tested(cases, site)
        prepared = _prepared(out, cases, wanted.settings, left, united)
        split: object = "as videos.csv or the clients' file says" if given else tuple(fractions)
        if wanted.blocks:
            split = "in turn, blocks of {:g} s with {:g} s between them left out".format(*wanted.blocks)
        settings = {"folder": folder, "layout": name, "split": split, "seed": seed}
        settings["numbers a second in the names of frames"] = wanted.settings.names_rate
        write_site(prepared, staging, site, settings | ({"client": client.about} if client and client.about else {}))
    return prepared


def require_tested(cases: Sequence[VideoCase], site: str) -> None:
    """Refuse a client without a test list; DataError names it, and the videos that were refused."""
    if "testing" not in listed(cases):
        reasons = "".join(f"\n    {line}" for line in refusals(cases))
        raise DataError(f"the client '{site}' has no test list; give it videos for 'testing', or leave it out{reasons}")


def refuse_other_columns(cases: Sequence[VideoCase]) -> None:
    """Refuse tables whose columns are not those of most tables: what a missing column means, nobody knows."""
    tables = [case for case in cases if case.usable and case.table]
    counts = Counter(frozenset(case.columns) for case in tables)
    usual = max(counts, key=lambda columns: (counts[columns], len(columns), sorted(columns)), default=frozenset[str]())
    for case in tables:
        if other := ", ".join(sorted(usual ^ set(case.columns))):
            case.faults.append(f"its table and those of most videos differ in the columns {other}; write them in each")


def note_missing_labels(cases: Sequence[VideoCase]) -> None:
    """Note videos without labels, and those without a table where others have one: a name may be misspelled."""
    usable = [case for case in cases if case.usable]
    tables = any(case.table for case in usable)
    for case in usable:
        if not case.label:
            case.notes.append("neither labels nor masks were found for it, so it can only be 'unlabeled'")
        elif tables and not case.table:
            case.notes.append("it has no table of labels, as others have; a job that reads tables refuses its list")


def fill_given(cases: Sequence[VideoCase], given: Mapping[str, str], folder: Path, shared: bool = False) -> None:
    """Set ``lists`` as the folder says them; videos without a list are left out.

    Raises:
        DataError: a patient is in two lists of which one is scored, unless they are ``shared`` on purpose.
    """
    lists: dict[str, dict[str, str]] = defaultdict(dict)
    for case in cases:
        if case.usable and (name := given.get(case.case)):
            if name != UNLABELED and not case.label:
                case.faults.append(f"is listed for '{name}', and nothing is known of it; list it as '{UNLABELED}'")
                continue
            case.lists = [name]
            lists[case.patient].setdefault(name, case.case)
    for patient, held in {} if shared else lists.items():
        if len(held) > 1 and set(held) & {"validation", "testing"}:
            shown = f"patient '{patient}' is in two lists, " + " and ".join(f"{name} ({held[name]})" for name in held)
            raise DataError(f"{folder}: {shown}; a score would be too good: keep one")


def _read(folder: Path, recordings: Sequence[Recording]) -> set[Path]:
    """The files that become videos, labels and masks, and folders of them."""
    files = {folder / INDEX, *(one.video for one in recordings), *(path for one in recordings for path in one.labels)}
    return files | {path for one in recordings for _, paths in one.masks for path in paths}


def _prepared(
    out: Path, cases: Sequence[VideoCase], settings: FrameSettings, left: Sequence[str], united: Sequence[str]
) -> Prepared:
    used = [case for case in cases if case.lists]
    labelled = [case for case in used if case.lists != [UNLABELED]]
    rate = None if any(case.found.is_dir() for case in used) else settings.rate  # single frames have no rate
    counts = tool_counts(used)
    space = SpaceNeeded(sum(case.shape[0] for case in used), *settings.size, rate)
    sections = {
        "Refused": refusals(cases),
        "Worth a look": [*united, *note_counts(cases)],
        LEFT: left,
        "Tools that a list never or always shows": one_sided(counts),
        "Rows that show each tool": shares_of_tools(counts),
        "Phases that a list never or always shows": _phases_of_lists(used),
        "Rows of each phase": shares_of_phases(phase_counts(used)),
        "White frames": _white(used),
        "Space of the prepared frames": [space.words()],
    }
    has = {part: all(getattr(case, part) for case in labelled) for part in ("table", "mask")}
    first = patient_warnings(cases, "video", REMEDY) if not any(case.blocks_of for case in cases) else []
    form = Video(labels=has["table"], masks=has["mask"])
    return Prepared(out, out, cases, "videos", COLUMNS, _list_table(cases), sections, form=form, first=first)


def _phases_of_lists(cases: Sequence[VideoCase]) -> list[str]:
    """Sentences about phases that a list never shows, though another list does, and lists of one phase alone."""
    counts = phase_counts(cases)
    always = [f"every row of '{name}' is of the phase '{phase}'" for name, phase in alone(counts).items()]
    return always + missing(counts, list(added(counts.values())))


def _white(cases: Sequence[VideoCase]) -> list[str]:
    """Say how many frames are white, and what makes one white."""
    white, frames = (sum(numbers) for numbers in zip(*((case.white, case.shape[0]) for case in cases), strict=True))
    where = ", ".join(f"{case.case} {case.white}" for case in cases if case.white)
    shown = f"{white} of {frames} frames ({where}); jobs for tools leave them out (drop: [white])"
    return [f"{shown}: {WORDS['white']}"] if white else []


def _list_table(cases: Sequence[VideoCase]) -> Rows:
    """Rows (list, videos, patients, minutes, what is known, masks, share out of the body), a heading first."""
    rows: Rows = [("list", "videos", "patients", "minutes", "known", "masks", "frames out of the body")]
    for name, videos in listed(cases).items():
        frames = sum(case.shape[0] for case in videos)
        known = "–" if name == UNLABELED else "; ".join(sorted({case.label for case in videos}))
        minutes, outside = sum(case.seconds for case in videos) / 60, sum(case.out_of_body for case in videos)
        people, masks = len({case.patient for case in videos}), sum(case.masks for case in videos)
        share = f"{outside / max(1, frames):.1%}"
        rows.append((name, str(len(videos)), str(people), f"{minutes:.1f}", known, str(masks), share))
    return rows


def in_blocks(recording: Recording, seconds: float, gap: float) -> list[Recording]:
    """The recording itself, which has no list then, and its blocks in turn as two recordings of the same patient.

    Block n begins ``n * (seconds + gap)`` after the first frame; frames of a gap are in none.

    Raises:
        DataError: blocks without a length, or a gap below 0.
    """
    if not (seconds > 0 and gap >= 0):
        raise DataError(f"--blocks {seconds:g} {gap:g}: give the seconds of a block, above 0, and of a gap")
    if recording.fault:
        return [recording]
    if not recording.frames:
        return [replace(recording, fault="only folders of single frames can be cut into blocks, and this is a video")]
    start, parts = recording.frames[0][1], []
    for place, name in enumerate(IN_TURN):
        times = ((file, second, divmod(second - start, seconds + gap)) for file, second in recording.frames)
        frames = tuple((file, second) for file, second, (n, into) in times if n % 2 == place and into < seconds)
        masks = tuple((second, files) for second, files in recording.masks if second in dict(frames).values())
        fault = "" if frames else f"no frame lies in its blocks for '{name}'; give shorter ones with --blocks"
        part = replace(recording, case=f"{recording.case}_{name}", frames=frames, masks=masks, list=name, fault=fault)
        parts.append(part)
    return [replace(recording, list=""), *parts]


def list_blocks(cases: Sequence[VideoCase], out: Path, staging: Path) -> None:
    """Let blocks for training be ``validation`` too, and write ``datalist_whole.json`` with the whole videos.

    Nothing is left to validate on, and a job that needs the list gets one that favours no test. In the second datalist
    a video is in all lists: whoever is left out tests on it, the others train on theirs.
    """
    whole = []
    for case in cases:
        if case.lists == ["training"]:
            case.lists.append("validation")
        elif case.usable and not case.lists and case.label:
            case.notes.append(f"whole, it is in {WHOLE} alone")
            whole.append(replace(case, lists=list(LABELLED)))
    write_datalist(staging / WHOLE, whole, {case.case: entry(case, out, out, staging) for case in whole})
