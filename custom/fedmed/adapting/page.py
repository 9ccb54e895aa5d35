"""The page of a bundle adapted to a hospital's images: what changed, and what nobody can know without labels."""

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup, escape
from matplotlib.colors import to_rgb
from PIL import Image
from torch import Tensor

from fedmed.adapting import charts
from fedmed.adapting.charts import chosen_cases
from fedmed.adapting.decisions import COLOUR, INTENSITY, STATISTICS, Adapted, Prediction
from fedmed.adapting.folder_images import FolderImages
from fedmed.data.augment.colours import COLOURS, Colours, colours
from fedmed.plain_text import in_markdown
from fedmed.reports import plots
from fedmed.reports.label_charts import spoken
from fedmed.reports.palette import MARKS, png_address
from fedmed.reports.sheet import Sheet, SheetFigure, SheetTable
from fedmed.reports.words import join
from fedmed.training.case_recorder import axial
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
WIDE = 320  # pixels of a picture
TOP = 3  # classes that are shown of an image
OUTLINED = 240  # pixels that a picture has at least before outlines are drawn, which would fill a small one
WORDS = {
    INTENSITY: "brightness of the images",
    COLOUR: "colours of the images",
    STATISTICS: "mean and variance of the normalisation layers",
}


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
        tables.append(_colours(references[COLOURS], adapted.images))
    if adapted.images.faults:
        left = [[fault] for fault in adapted.images.faults]
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
    facts = [("images", amount), ("files left out", str(len(adapted.images.faults)))]
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
    notices = []
    for one in adapted.decisions:
        if one.doubted:
            said = "was made in spite of what the model calls after it" if one.made else "was left out"
            notices.append(f"'{one.name}' {said}: {one.why}.")
    if adapted.after is None:
        notices.append(
            "What this model says of single images cannot be compared: it needs whole videos. Adaptations were decided "
            "by distances alone."
        )
    elif adapted.after.called.classes <= 1:
        notices.append("The model calls one class alone, or none, on these images: it is hardly of use here.")
    return notices


def _colours(reference: Tensor, images: FolderImages) -> SheetTable:
    here, there = colours(OwnImages(images).spread()), Colours.of(reference.view(3, 3))
    rows = []
    for name, one in (("of this hospital", here), ("of the training hospitals", there)):
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
    with plots.style():
        if before is not None and after is not None:
            note = f"On {len(before.each)} of the images, evenly spread. To be sure is not to be right."
            drawn = Markup(plots.svg(charts.calls(before, after), "calls-chart"))
            figures.append(SheetFigure("What is called, and how sure", note, drawn))
        carried = f"as a mean its {', '.join(sorted(references))}" if references else "nothing to compare with"
        note = f"Of the training hospitals' images the bundle carries {carried}. The darkest bin is cut off."
        drawn = Markup(plots.svg(charts.histograms(adapted, references), "histograms"))
        figures.append(SheetFigure("How bright the images are", note, drawn))
        if adapted.layers:
            note = "Of each normalisation layer, in the order of the network: how far the mean of its input lies from "
            note += "that of the training, in deviations."
            drawn = Markup(plots.svg(charts.layers(adapted), "layers"))
            figures.append(SheetFigure("Distance of statistics by layer", note, drawn))
    return figures


def cases(adapted: Adapted) -> Markup:
    """Return HTML of a few cases; both models must have predictions."""
    assert adapted.before is not None and adapted.after is not None
    parts, classes = [Markup('<div class="calls">')], adapted.before.classes
    for number in chosen_cases(adapted.before, adapted.after):
        old, new = adapted.before.each[number], adapted.after.each[number]
        image, shown = (images[old.place]["image"] for images in (adapted.images, adapted.shown))
        if old.is_mask:
            at = _slice(old, new)
            pair = [_marked(_picture(image, at), old, at)]
            if adapted.made:
                pair.append(_marked(_picture(shown, at), new, at))
            below = _amounts(old, new, classes)
        else:
            pair = [_picture(image, None)]
            if adapted.shown is not adapted.images:
                pair.append(_picture(shown, None))
            below = _probabilities(old, new, classes)
        parts.append(_case(adapted.images.names[old.place], pair, below))
    return Markup("").join([*parts, Markup("</div>")])


def _case(name: str, pictures: list[np.ndarray], below: Markup) -> Markup:
    images = Markup("").join(Markup('<img src="{}" alt="">').format(png_address(_small(one))) for one in pictures)
    kind = Markup('<div class="pair">{}</div>').format(images) if len(pictures) > 1 else images
    caption = Markup('<figcaption><span class="id" title="{0}">{0}</span></figcaption>').format(name)
    return Markup("<figure>{}{}{}</figure>").format(kind, caption, below)


def _table(rows: list[tuple[str, str, str]]) -> Markup:
    body = Markup("").join(
        Markup('<tr><td>{}</td><td class="n">{}</td><td class="n">{}</td></tr>').format(spoken(escape(name)), a, b)
        for name, a, b in rows
    )
    head = Markup('<tr><td></td><td class="n">before</td><td class="n">after</td></tr>')
    return Markup('<table class="bars">{}{}</table>').format(head, body)


def _probabilities(old: Prediction, new: Prediction, classes: tuple[str, ...]) -> Markup:
    likeliest = (old.values + new.values).argsort(descending=True).tolist()[:TOP]
    return _table([(classes[k], f"{float(old.values[k]):.0%}", f"{float(new.values[k]):.0%}") for k in likeliest])


def _amounts(old: Prediction, new: Prediction, classes: tuple[str, ...]) -> Markup:
    shares = [[float((one.values == k).float().mean()) for one in (old, new)] for k in range(len(classes))]
    rows = [(classes[k], f"{a:.1%}", f"{b:.1%}") for k, (a, b) in enumerate(shares) if k and (a or b)]
    return _table(rows or [("nothing is marked", "", "")])


def _slice(old: Prediction, new: Prediction) -> int | None:
    """Return the axial slice of a volume with the most marks, or the middle one; None of a picture."""
    if old.values.ndim != 3:
        return None
    marked = ((old.values > 0) | (new.values > 0)).sum(dim=(0, 1))
    return int(marked.argmax()) if int(marked.max()) else len(marked) // 2


def _picture(image: Tensor, at: int | None) -> np.ndarray:
    """Return (H, W, 3) from 0 to 1: the last frame of a clip, or a slice, the patient's right on the left."""
    values = axial(image[0], at)[None] if at is not None else image.numpy()
    if len(values) % 3:
        values = np.repeat(values[:1], 3, axis=0)
    return np.nan_to_num(values[-3:].transpose(1, 2, 0)).clip(0, 1)


def _marked(picture: np.ndarray, said: Prediction, at: int | None) -> np.ndarray:
    """Return the picture with the edges of what is marked."""
    mask = said.values.numpy() if at is None else axial(said.values, at)
    factor = max(1, OUTLINED // max(mask.shape))
    mask, shown = (np.repeat(np.repeat(one, factor, axis=0), factor, axis=1) for one in (mask, picture))
    for value in range(1, int(mask.max()) + 1):
        inside = np.pad(mask == value, 1)
        core = inside[:-2, 1:-1] & inside[2:, 1:-1] & inside[1:-1, :-2] & inside[1:-1, 2:]
        shown[(mask == value) & ~core] = to_rgb(MARKS[(value - 1) % len(MARKS)])
    return shown


def _small(picture: np.ndarray) -> np.ndarray:
    height, width = picture.shape[:2]
    scale = min(1.0, WIDE / max(height, width))
    size = max(1, round(width * scale)), max(1, round(height * scale))
    whole = Image.fromarray((picture * 255).round().astype(np.uint8))
    return np.asarray(whole.resize(size, Image.Resampling.BILINEAR)) / 255


def card_section(adapted: Adapted, amount: str, version: str) -> str:
    """Return the section of a model card, as Markdown."""
    rows = [
        f"| {one.name}: {WORDS[one.name]} | {'yes' if one.made else 'no'} | {in_markdown(one.why)} |"
        for one in adapted.decisions
    ]
    share = ""
    if adapted.share:
        share = f" The images' own are {adapted.share:.0%} of the statistics; the rest came with the model."
    return "\n".join(
        [
            "## Adapted to one hospital's images",
            "",
            f"Version {version} was adapted to {amount} of one hospital. Nobody looked at a label, and no weight was "
            f"trained.{share} Results below are of the bundle before: how well this one does at that hospital is not "
            "known until a reader has marked some of its images, and elsewhere it may do worse.",
            "",
            "| Adaptation | Made | Why |",
            "|---|---|---|",
            *rows,
            "",
            "`docs/page.html`, if it is there, shows the hospital's own images before and after. Remove it before you "
            "give the bundle to anybody.",
            "",
        ]
    )


def with_section(card: str, section: str) -> str:
    """Return a model card with a section before its first one."""
    head, mark, rest = card.partition("\n## ")
    return f"{head}\n{section}{mark}{rest}" if mark else f"{card.rstrip()}\n\n{section}"
