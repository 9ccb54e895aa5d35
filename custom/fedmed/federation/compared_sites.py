"""Comparison of the sites' fingerprints: what does not fit, in sentences that name site and number.

What is usual is the middle of all sites' values, of an even number of sites the lower one; a site is named where it is
far from that. Thresholds are wide: hospitals differ, and only what would spoil a common model is worth a sentence.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high, median_low
from typing import Any

import numpy as np

from fedmed.messages.fingerprint import GRID

Values = Mapping[str, Any]  # a site's fingerprint
Finding = tuple[str, str]  # site, and what does not fit

COARSER = 1.8  # times the usual spacing
LARGER = 3.0  # times the usual size in mm, or in pixels of a picture or frame
FAR = 0.25  # of the usual range of intensities: so much are both its ends shifted
NARROW, WIDE = 0.4, 2.5  # times that range: another unit
LACKED, UNEQUAL = 0.15, 0.4  # share of a class that a site lacks altogether, and difference from the usual share
OFFSET, NEAR = 1024.0, 150.0  # of raw values of CT, and how near a shift must come to it
DARKER = 0.3  # of the brightness of pictures, 0 to 1
OPPOSITE = -0.2  # correlation of where pictures are bright
TURNED = 0.25  # by which it is higher once a site's are turned
ASIDE = 0.03  # by which the middle of the brightness lies beside the image's, for its side to be known
TURNS: Mapping[str, Callable[[Any], Any]] = {  # a mirrored chest is too much like one that is not
    "upside down": lambda grid: grid[::-1],
    "turned by 90°": np.rot90,
    "turned by 270°": lambda grid: np.rot90(grid, 3),
}
SIDES = {"x": "left and right", "y": "back and front", "z": "feet and head"}


@dataclass(frozen=True)
class Expected:
    """Demands of the study on its sites.

    Attributes:
        classes: names of its classes.
        masks: whether labels are masks, in which 1, 2, … stand for these and 0 for all else.
        turns: whether the bundle's preparation turns images by the directions in their headers.
    """

    classes: Sequence[str] = ()
    masks: bool = False
    turns: bool = False


def compare(sites: Mapping[str, Values], expected: Expected) -> list[Finding]:
    """Say what does not fit together, site by site."""
    findings: list[Finding] = [*_labels(sites, expected)]
    images = Counter(values["images"] for values in sites.values())
    for kind in images:
        alike = {site: values for site, values in sorted(sites.items()) if values["images"] == kind}
        findings += [*_spacing(alike), *_sizes(alike), *_intensity(alike, kind), *_directions(alike, expected)]
        findings += [*_pictures(alike), *_balance(alike, expected)]
    return sorted(findings, key=lambda finding: finding[0])


def _labels(sites: Mapping[str, Values], expected: Expected) -> Iterator[Finding]:
    known = ["0", *(str(number + 1) for number in range(len(expected.classes)))]
    for site, values in sites.items():
        shares = values.get("values", {}) if expected.masks else {}
        if odd := {value: share for value, share in shares.items() if value not in known and share > 0}:
            parts = ", ".join(f"{value} ({percent(share)} of the voxels)" for value, share in odd.items())
            yield site, f"its masks hold {parts}; the study knows {', '.join(known)}: save them with these values"
        elif shares and not any(shares.get(value, 0) > 0 for value in known[1:]):
            yield site, "its masks are 0 everywhere: they mark nothing"
        if other := values.get("other_classes"):
            names = ", ".join(expected.classes)
            yield site, f"{percent(other)} of its labels are none of the study's classes: {names}"


def _spacing(sites: Mapping[str, Values]) -> Iterator[Finding]:
    usual = _usual(sites, "spacing")
    for site, values in sites.items():
        ratios = {axis: three["median"] / usual[axis] for axis, three in values.get("spacing", {}).items()}
        worst = max(ratios, key=lambda axis: max(ratios[axis], 1 / ratios[axis]), default=None)
        if worst is None or 1 / COARSER < ratios[worst] < COARSER:
            continue
        theirs = {axis: three["median"] for axis, three in values["spacing"].items()}
        ratio = ratios[worst]
        how = f"{ratio:.2g} times as coarse" if ratio > 1 else f"{1 / ratio:.2g} times as fine"
        text = f"its voxels are {millimetres(theirs)}, usual is {millimetres(usual)}: along {worst} {how}"
        yield site, f"{text}; a model sees less there, or invents it: look for thinner slices, or for a common spacing"


def _sizes(sites: Mapping[str, Values]) -> Iterator[Finding]:
    name, unit = ("extent", "mm") if any("extent" in values for values in sites.values()) else ("size", "pixels")
    usual = _usual(sites, name)
    for site, values in sites.items():
        ratios = {axis: three["median"] / usual[axis] for axis, three in values.get(name, {}).items()}
        worst = max(ratios, key=lambda axis: max(ratios[axis], 1 / ratios[axis]), default=None)
        if worst is not None and not 1 / LARGER < ratios[worst] < LARGER:
            theirs = values[name][worst]["median"]
            text = f"its images measure {theirs:g} {unit} along {worst}, usual are {usual[worst]:g}"
            yield site, f"{text}: another part of the body, crops, or another size of export"


def _intensity(sites: Mapping[str, Values], kind: str) -> Iterator[Finding]:
    known = {site: values["intensity"] for site, values in sites.items() if "intensity" in values}
    if not known:
        return
    key = "median" if kind == "picture" else "low"
    middle = median_low([three[key] for three in known.values()])
    usual = next(three for three in known.values() if three[key] == middle)
    for site, three in known.items():
        shown = f"its intensities reach from {three['low']:g} to {three['high']:g}, usual is {usual['low']:g} to "
        shown += f"{usual['high']:g}"
        if kind == "picture":
            if abs(three["median"] - usual["median"]) > DARKER:
                text = f"the middle brightness of its images is {three['median']:g}, usual is {usual['median']:g}"
                yield site, f"{text} (0 is black, 1 white): are they inverted?"
        elif unlike := _unlike(three, usual):
            yield site, f"{shown}: {unlike}"


def _unlike(three: Mapping[str, float], usual: Mapping[str, float]) -> str:
    """Say how a site's intensities are unlike the usual ones; "" where they are not."""
    width, wide = three["high"] - three["low"], usual["high"] - usual["low"]
    low, high = three["low"] - usual["low"], three["high"] - usual["high"]
    if wide <= 0 or width < NARROW * wide or (width > WIDE * wide and abs(high) > FAR * wide):
        picture = usual["low"] < 0 <= three["low"] and three["high"] <= 255
        unit = "pictures of 0 to 255 in place of Hounsfield units" if picture else "another unit, or another range"
        return f"{unit}; export them again in the unit of the others" if width != wide else ""
    if min(abs(low), abs(high)) > FAR * wide and abs(low - high) < FAR * wide and low * high > 0:
        how = "without" if low > 0 else "that lost twice"
        why = f"raw values {how} the offset of {OFFSET:g}" if abs(abs(low) - OFFSET) < NEAR else "an offset"
        return f"all are shifted by {low:+.0f}, {why}; export them again with the rescaling of their headers"
    return ""


def _directions(sites: Mapping[str, Values], expected: Expected) -> Iterator[Finding]:
    stored = {site: shares for site, values in sites.items() if (shares := values.get("orientation"))}
    codes = {site: max(shares, key=shares.__getitem__) for site, shares in stored.items()}
    usual_code = Counter(codes.values()).most_common(1)[0][0] if codes else ""
    centres = {site: values["centre"] for site, values in sites.items() if "centre" in values}
    usual = {axis: median_low([centre[axis] for centre in centres.values()]) for axis in SIDES} if centres else {}
    for site in sites:
        if not expected.turns and codes.get(site, usual_code) != usual_code:
            text = f"its images are stored as {codes[site]}, usual is {usual_code}, and the bundle does not turn them"
            yield site, f"{text}: store them in one direction"
        for axis, theirs in centres.get(site, {}).items():
            if min(abs(theirs - 0.5), abs(usual[axis] - 0.5)) >= ASIDE and (theirs - 0.5) * (usual[axis] - 0.5) < 0:
                text = f"the middle of the brightness lies at {theirs:g} along {axis} and usually at {usual[axis]:g}"
                yield site, f"{text}: are {SIDES[axis]} exchanged? Compare one image with another site's in a viewer"


def _pictures(sites: Mapping[str, Values]) -> Iterator[Finding]:
    """Compare where pictures are bright: inverted ones correlate with the others' negatively, turned ones less."""
    grids = {
        site: np.reshape([values["grid"][name] for name in GRID], (4, 4))
        for site, values in sites.items()
        if "grid" in values and len(set(values["grid"].values())) > 1
    }
    for site, grid in grids.items():
        others = [other for name, other in grids.items() if name != site]
        if not others:
            return
        alike = median_high(_likeness(grid, others))  # by both medians, sites that are as they should be are not named
        turned = {name: median_low(_likeness(turn(grid), others)) for name, turn in TURNS.items()}
        best = max(turned, key=turned.__getitem__)
        if alike < OPPOSITE and -alike > turned[best]:
            text = f"its images are bright where the others' are dark (correlation {alike:.1f})"
            yield site, f"{text}: are they inverted? Export them as the others are (DICOM: MONOCHROME2)"
        elif turned[best] > max(alike, 0) + TURNED:
            yield site, f"its images look {best}: look at one of them beside another site's"


def _balance(sites: Mapping[str, Values], expected: Expected) -> Iterator[Finding]:
    """Compare how often classes are among the labels; of a site the one is named that is furthest from the usual."""
    known = {site: values["classes"] for site, values in sites.items() if "classes" in values}
    numbers = sorted({number for shares in known.values() for number in shares})
    usual = {number: median_low([shares.get(number, 0.0) for shares in known.values()]) for number in numbers}
    for site, shares in known.items():
        far = {number: round(abs(shares.get(number, 0.0) - usual[number]), 2) for number in numbers}
        odd = [n for n in numbers if far[n] >= (UNEQUAL if shares.get(n) else LACKED)]
        if odd:
            worst = max(odd, key=far.__getitem__)
            share, name = shares.get(worst, 0.0), expected.classes[int(worst)]
            text = f"{percent(share)} of its labels are '{name}', usual are {percent(usual[worst])}"
            why = "other patients, or other rules of labelling" if share else "another name there, or never labelled?"
            yield site, f"{text}: {why}"


def _likeness(grid: Any, others: Sequence[Any]) -> list[float]:
    """Correlation of a site's fields with those of each other site."""
    return [float(np.corrcoef(grid.ravel(), other.ravel())[0, 1]) for other in others]


def _usual(sites: Mapping[str, Values], name: str) -> dict[str, float]:
    """Axis -> the middle of the sites' medians; {} where no site says it, or says 0."""
    known = [values[name] for values in sites.values() if name in values]
    axes = {axis: median_low([of[axis]["median"] for of in known]) for axis in (known[0] if known else ())}
    return axes if all(value > 0 for value in axes.values()) else {}


def percent(share: float) -> str:
    """A share as a person reads it: 12 %, 0.3 %."""
    return f"{100 * share:.2g} %"


def millimetres(axes: Mapping[str, float]) -> str:
    """Spacings in a row: 0.7 × 0.7 × 5 mm."""
    return " × ".join(f"{value:g}" for value in axes.values()) + " mm"
