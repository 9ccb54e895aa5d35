"""Cut recordings of single frames along time, so that one video gives frames to train on and others to be tested on.

Frames of one operation resemble one another: a score on blocks of a video that was trained on is of that operation.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedmed.data.datalist import LABELLED
from fedmed.data.prepare.case import VideoCase
from fedmed.data.prepare.video_layouts.layout import Recording
from fedmed.data.prepare.write import entry, write_datalist
from fedmed.errors import DataError

WHOLE = "datalist_whole.json"
IN_TURN = ("training", "testing")


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
