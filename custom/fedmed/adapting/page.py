"""The page of a bundle adapted to a hospital's images: what changed, and what nobody can know without labels."""

from collections.abc import Mapping

from markupsafe import Markup
from torch import Tensor

from fedmed.adapting import charts
from fedmed.adapting.card import WORDS
from fedmed.adapting.cases import cases
from fedmed.adapting.decisions import Adapted, Decision
from fedmed.adapting.folder_images import FolderImages
from fedmed.data.augment.colours import COLOURS, Colours, colours
from fedmed.reports.plots import style, svg
from fedmed.reports.sheet import Sheet, SheetFigure, SheetTable
from fedmed.reports.words import join
from fedmed.training.corrections.own_images import OwnImages

KIND = "adapted to this hospital's images"
UNKNOWN = [
    "Whether the model is right. It may be sure and wrong, and more so after an adaptation: only labels tell. Have a "
    "reader mark some images of several patients and compare both bundles on them before you use either.",
    "Whether a difference is one of the scanner or the camera, which an adaptation should undo, or one of the "
    "patients, which it should not: a ward with more disease has brighter lungs, and other shares of each class.",
    "How the model does on images unlike these: another device, another year. Adapt again, from the bundle as it came.",
]
ON_PAGE = (
    "This page shows images of this hospital and names their files. It stands outside of the bundle's digests: remove "
    "it before you give the bundle to anybody. Nothing was sent anywhere to make it."
)


def adaptation_page(name: str, adapted: Adapted, amount: str, references: Mapping[str, Tensor]) -> Sheet:
    """Put both models on a page.

    Args:
        name: of the new bundle.
        adapted: the model before and after.
        amount: how many images, in words.
        references: what the bundle carries of the training hospitals.
    """
    rows = [[one.name, WORDS[one.name], "yes" if one.made else "no", one.why] for one in adapted.decisions]
    tables = [SheetTable("What was adapted", "", ["adaptation", "of", "made", "why"], rows)]
    if COLOURS in references and not any(one.failed for one in adapted.decisions):
        tables.append(_colours(references[COLOURS], adapted.own))
    if adapted.own.faults:
        left = [[fault] for fault in adapted.own.faults]
        tables.append(SheetTable("Could not be read, and left out", "", ["why"], left, long=True))
    closing = [("What cannot be known without labels", UNKNOWN), ("This page", [ON_PAGE])]
    summary, figures = _summary(adapted, amount), _figures(adapted, references)
    return Sheet(name, KIND, summary, _facts(adapted, amount), tables, _notices(adapted), closing, figures)


def _summary(adapted: Adapted, amount: str) -> str:
    if not adapted.made:
        return f"Nothing was changed: on {amount} no adaptation was called for. The bundle is the one that came."
    what = join([WORDS[name] for name in adapted.made])
    moved = ""
    if adapted.before is not None and adapted.after is not None:
        moved = f" The model now calls {adapted.before.other_calls(adapted.after):.0%} of the images otherwise."
    return f"Adapted to {amount}, without labels: {what}.{moved}"


def _facts(adapted: Adapted, amount: str) -> list[tuple[str, str]]:
    facts = [("images", amount), ("files left out", str(len(adapted.own.faults)))]
    if adapted.layers:
        facts.append(("layers", str(len(adapted.layers))))
    if adapted.share:
        facts.append(("own share of statistics", f"{adapted.share:.0%}"))
    if adapted.before is not None and adapted.after is not None:
        before, after = adapted.before.called, adapted.after.called
        facts.append(("mean entropy", f"{before.entropy:.2f} → {after.entropy:.2f}"))
        facts.append(("classes called", f"{before.classes} → {after.classes} of {len(before.shares)}"))
    return facts


def _notices(adapted: Adapted) -> list[str]:
    found = [_doubt(one) for one in adapted.decisions if one.doubted]
    if adapted.after is None:
        found.append(
            "What this model says of single images cannot be compared: it needs whole videos. Adaptations were decided "
            "by distances alone."
        )
    elif adapted.after.called.classes <= 1:
        found.append("The model calls one class alone, or none, on these images: it is hardly of use here.")
    return found


def _doubt(decision: Decision) -> str:
    said = "was made in spite of what the model calls after it" if decision.made else "was left out"
    return f"'{decision.name}' {said}: {decision.why}."


def _colours(told: Tensor, own: FolderImages) -> SheetTable:
    rows = []
    looked = [("of this hospital", colours(OwnImages(own).spread()))]
    for name, one in [*looked, ("of the training hospitals", Colours.of(told.view(3, 3)))]:
        pairs = zip(one.mean.tolist(), one.deviation.tolist(), strict=True)
        rows.append([name, *(f"{mean:.2f} ± {deviation:.2f}" for mean, deviation in pairs)])
    note = "Mean and deviation of lightness and of two opponent colours (lαβ) over all pixels that are not black."
    return SheetTable("Colours", note, ["images", "l#", "α#", "β#"], rows)


def _figures(adapted: Adapted, references: Mapping[str, Tensor]) -> list[SheetFigure]:
    before, after = adapted.before, adapted.after
    figures = []
    if before is not None and after is not None:
        note = "Those that changed most first, then some spread over the list. " if adapted.made else ""
        below = "Below each picture the likeliest classes."
        outlines = f"Outlines: what the model marks{', after it at the right' if adapted.made else ''}."
        note += outlines if before.each[0].is_mask else below
        title = "Some images before and after" if adapted.made else "Some images, and what the model says of them"
        figures.append(SheetFigure(title, note, cases(adapted)))
    with style():
        if before is not None and after is not None:
            note = f"On {len(before.each)} of the images, evenly spread. To be sure is not to be right."
            figures.append(
                SheetFigure(
                    "What is called, and how sure", note, Markup(svg(charts.calls(before, after), "calls-chart"))
                )
            )
        drawn = Markup(svg(charts.histograms(adapted, references), "histograms"))
        figures.append(SheetFigure("How bright the images are", _known(references), drawn))
        if adapted.layers:
            note = "Of each normalisation layer, in the order of the network: how far the mean of its input lies from "
            note += "that of the training, in deviations."
            figures.append(
                SheetFigure("Distance of statistics by layer", note, Markup(svg(charts.layers(adapted), "layers")))
            )
    return figures


def _known(references: Mapping[str, Tensor]) -> str:
    carried = f"as a mean its {', '.join(sorted(references))}" if references else "nothing to compare with"
    return f"Of the training hospitals' images the bundle carries {carried}. The darkest bin is cut off."
