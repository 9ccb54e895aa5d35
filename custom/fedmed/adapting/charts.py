"""Charts of a bundle before and after its adaptation to a hospital's images."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from fedmed.adapting.decisions import DEAD_ZONE, Adapted, Predictions
from fedmed.adapting.folder_images import FolderImages
from fedmed.data.augment.intensities import INTENSITIES, histogram
from fedmed.reports.label_charts import spoken
from fedmed.reports.palette import INK, LIGHT, MUTED
from fedmed.reports.plots import WIDTH
from fedmed.training.corrections.own_images import OwnImages

BEFORE, AFTER, TRAINING = MUTED, LIGHT[0], LIGHT[1]
CHANNELS = ("red", "green", "blue")
DRAWN = 25  # bins of a drawn histogram
NAMED = 40  # layers whose names can be read below a chart


def _legend(axes: Axes) -> None:
    axes.legend(frameon=False, loc="upper right", handlelength=1.4, borderaxespad=0.2)


def histograms(adapted: Adapted, references: Mapping[str, Tensor]) -> Figure:
    """Draw the brightness of images: as they came, as the model sees them now, and of the training where known."""
    colours = adapted.images[0]["image"].shape[0] % 3 == 0
    figure = Figure(figsize=(WIDTH, 2.6), layout="constrained")
    panels = figure.subplots(1, 3 if colours else 1, squeeze=False)[0]
    for channel, axes in enumerate(panels):
        which = channel if colours else None
        wanted = None if colours else references.get(INTENSITIES)
        _histogram(axes, _shares(adapted.images, which), "as they came", BEFORE)
        if adapted.shown is not adapted.images:
            _histogram(axes, _shares(adapted.shown, which), "as the model sees them", AFTER)
        if wanted is not None:
            _histogram(axes, wanted, "of the training hospitals", TRAINING)
        axes.set(xlim=(0, 1), ylim=(0, None), yticks=[], xlabel=CHANNELS[channel] if colours else "brightness, 0 to 1")
    _legend(panels[-1])
    return figure


def _shares(images: FolderImages, channel: int | None) -> Tensor:
    pictures = OwnImages(images).spread()
    return histogram((one if channel is None else one[-3 + channel]).clamp(0, 1) for one in pictures)


def _histogram(axes: Axes, shares: Tensor, label: str, colour: str) -> None:
    # Bins of 100 over pictures of 8 bits are a comb, and black around a picture would flatten everything else.
    y = shares.numpy().reshape(DRAWN, -1).sum(axis=1)
    x = (np.arange(DRAWN) + 0.5) / DRAWN
    y[0] = min(y[0], y[1:].max() * 1.15)
    axes.plot(x, y, color=colour, linewidth=1.6, label=label)


def layers(adapted: Adapted) -> Figure:
    """Draw the distance of each layer's input from that of the training, before and after."""
    figure = Figure(figsize=(WIDTH, 3.2), layout="constrained")
    axes = figure.subplots()
    names = list(adapted.layers)
    distances = np.array([one.distance for one in adapted.layers.values()])
    x = np.arange(len(names))
    axes.vlines(x, 0, distances, color=BEFORE, linewidth=1.2)
    axes.plot(x, distances, "o", color=BEFORE, label="before", markersize=5)
    if adapted.share:
        axes.plot(x, (1 - adapted.share) * distances, "o", color=AFTER, label="after", markersize=5)
    axes.axhline(
        DEAD_ZONE, color=INK, linewidth=1, linestyle=(0, (4, 3)), label="the mean from which it acts by itself"
    )
    axes.axhline(distances.mean(), color=BEFORE, linewidth=1, label="the mean before")
    ticks = x if len(names) <= NAMED else x[:: -(-len(names) // NAMED)]
    axes.set_xticks(ticks, [names[place] for place in ticks], rotation=60, ha="right", fontsize=7)
    axes.set(ylim=(0, max(DEAD_ZONE, distances.max()) * 1.5), ylabel="deviations", xlim=(-0.6, len(names) - 0.4))
    _legend(axes)
    return figure


def calls(before: Predictions, after: Predictions) -> Figure:
    """Draw in how many images each class is called, and how sure the model is of each image."""
    figure = Figure(figsize=(WIDTH, 0.42 * len(before.classes) + 1.5))
    figure.set_layout_engine("constrained", wspace=0.08)
    shares, sure = figure.subplots(1, 2)
    y, most = np.arange(len(before.classes)), 0
    series = [(before, BEFORE, "before"), (after, AFTER, "after")][: 1 if after is before else 2]
    for place, (said, colour, label) in enumerate(series):
        look: dict[str, Any] = {"color": colour, "label": label, "linewidth": 0}
        values = 100 * np.array(said.called.shares)
        shares.barh(y + 0.4 * place - 0.2, values, 0.36, **look)
        for at, value in zip(y + 0.4 * place - 0.2, values, strict=True):
            shares.annotate(f"{value:.0f}", (value, at), (3, 0), textcoords="offset points", va="center", fontsize=8)
        numbers, edges = np.histogram([one.entropy for one in said.each], 20, (0, 1))
        most = max(most, int(numbers.max()))
        sure.stairs(numbers, edges, color=colour, linewidth=1.6, label=label)
        sure.axvline(said.called.entropy, color=colour, linewidth=1, linestyle=(0, (4, 3)))
    shares.set_yticks(y, [spoken(name) for name in before.classes], color=INK)
    shares.set(xlim=(0, 112), ylim=(len(y) - 0.4, -0.6), xlabel="called in so many of 100 images")
    shares.grid(visible=False, axis="y")
    sure.set(xlim=(0, 1), ylim=(0, 1.4 * most), ylabel="images")
    sure.set_xlabel("entropy: 0 = sure, 1 = knows nothing (dashed: mean)")
    _legend(sure)
    return figure


def differences(before: Predictions, after: Predictions) -> list[float]:
    """Return the change of each image's prediction: half the sum of absolute differences, or the share of voxels."""
    changes = []
    for old, new in zip(before.each, after.each, strict=True):
        if old.is_mask:
            changes.append(float((old.values != new.values).float().mean()))
        else:
            changes.append(float((old.values - new.values).abs().sum() / 2))
    return changes


def chosen_cases(before: Predictions, after: Predictions, count: int = 6) -> list[int]:
    """Return places of a few predictions: half of them those that changed most, the others spread over the list."""
    order = torch.tensor(differences(before, after)).argsort(descending=True).tolist()
    most = order[: count // 2]
    others = np.linspace(0, len(order) - 1, count - len(most) + 2)[1:-1].round().astype(int).tolist()
    picked = list(dict.fromkeys([*most, *others]))
    return [*picked, *[place for place in order if place not in picked][: max(0, count - len(picked))]][:count]
