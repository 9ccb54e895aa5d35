"""A few images with what a model says of them before and after an adaptation, side by side."""

import numpy as np
from markupsafe import Markup, escape
from matplotlib.colors import to_rgb
from PIL import Image
from torch import Tensor

from fedmed.adapting.charts import chosen_cases
from fedmed.adapting.decisions import Adapted
from fedmed.adapting.predictions import Prediction
from fedmed.reports.palette import MARKS, png_address
from fedmed.reports.phase_charts import spoken

WIDE = 320  # pixels of a picture
TOP = 3  # classes that are shown of an image
OUTLINED = 240  # pixels that a picture has at least before outlines are drawn, which would fill a small one


def cases(adapted: Adapted) -> Markup:
    """HTML of a few cases; both must have predictions."""
    assert adapted.before is not None and adapted.after is not None
    parts, changed = [Markup('<div class="calls">')], bool(adapted.made)
    for number in chosen_cases(adapted.before, adapted.after):
        old, new = adapted.before.each[number], adapted.after.each[number]
        own, shown = (images[old.place]["image"] for images in (adapted.own, adapted.shown))
        if old.is_mask:
            at = _slice(old, new)
            pair = [_marked(_picture(own, at), old, at), _marked(_picture(shown, at), new, at)][: 2 if changed else 1]
            below = _amounts(old, new, adapted.before.classes)
        else:
            pair = [_picture(own, None), *([_picture(shown, None)] if adapted.shown is not adapted.own else [])]
            below = _probabilities(old, new, adapted.before.classes)
        parts.append(_case(adapted.own.names[old.place], pair, below))
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
    """Of a volume the axial slice with the most marks, or the middle one; None of a picture."""
    if old.values.ndim != 3:
        return None
    marked = ((old.values > 0) | (new.values > 0)).sum(dim=(0, 1))
    return int(marked.argmax()) if int(marked.max()) else len(marked) // 2


def _picture(image: Tensor, at: int | None) -> np.ndarray:
    """(H, W, 3) from 0 to 1: of a clip the last frame, of a volume a slice, the patient's right on the left."""
    values = _upright(image[0], at)[None] if at is not None else image.numpy()
    if len(values) % 3:
        values = np.repeat(values[:1], 3, axis=0)
    return np.nan_to_num(values[-3:].transpose(1, 2, 0)).clip(0, 1)


def _upright(volume: Tensor, at: int) -> np.ndarray:
    found: np.ndarray = volume[:, :, at].flip(0, 1).T.numpy()
    return found


def _marked(picture: np.ndarray, said: Prediction, at: int | None) -> np.ndarray:
    """The picture with the edges of what is marked."""
    mask = said.values.numpy() if at is None else _upright(said.values, at)
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
