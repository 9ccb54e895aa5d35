"""Decisions on a bundle's adaptations to a hospital's images, from what it predicts on them."""

import copy
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from fedmed.adapting.folder_images import FolderImages
from fedmed.data.augment.colours import COLOURS, Colours, colours, distance
from fedmed.data.augment.intensities import INTENSITIES, histogram, matching_gamma
from fedmed.data.listed_images import spread
from fedmed.errors import DataError
from fedmed.methods.find_method import adaptations
from fedmed.training.corrections import colour, gamma, statistics
from fedmed.training.corrections.own_images import MOST, OwnImages
from fedmed.training.corrections.statistics import LayerStatistics, of_one_shape
from fedmed.training.label_counts import TOLERANCE, Called, called, classes_called, entropy, objection

MOST_OF_AXES = {0: 500, 2: 60, 3: 8}  # images that are looked at, by axes of a prediction: classes, masks, volumes
STATISTICS, INTENSITY, COLOUR, NONE = "statistics", "intensity", "colour", "none"
ADAPTATIONS = (INTENSITY, COLOUR, STATISTICS)  # in the order in which they act
SETTINGS: dict[str, tuple[str, Any]] = {INTENSITY: ("image_gamma", 1.0), COLOUR: ("image_colours", None)}
REFERENCES = {INTENSITY: INTENSITIES, COLOUR: COLOURS}  # what a bundle carries of the training hospitals
# As in a federation that does not say otherwise.
PRIOR, DEAD_ZONE = (getattr(adaptations()["statistics"], name) for name in ("prior", "dead_zone"))
UNASKED = "not asked for (--adaptation)"


@dataclass(frozen=True)
class Prediction:
    """Prediction of one image.

    Attributes:
        place: of the image in its list.
        entropy, called: see :mod:`fedmed.training.label_counts`.
        values: probabilities (C,), or a mask (...) uint8 of the likeliest classes.
    """

    place: int
    entropy: float
    called: Tensor
    values: Tensor

    @property
    def is_mask(self) -> bool:
        """True for a mask."""
        return self.values.dtype == torch.uint8


@dataclass(frozen=True)
class Predictions:
    """Predictions of a list of images.

    Attributes:
        classes: names of the channels.
        several: whether classes may be there at once.
        each: at least one.
    """

    classes: tuple[str, ...]
    several: bool
    each: tuple[Prediction, ...]

    @property
    def called(self) -> Called:
        """Calls in all of them together."""
        return called((one.entropy, one.called) for one in self.each)

    def other_calls(self, after: "Predictions") -> float:
        """Return the share of the images, 0 to 1, in which other classes are called than before."""
        pairs = zip(self.each, after.each, strict=True)
        return sum(not torch.equal(old.called, new.called) for old, new in pairs) / len(self.each)


def predictions(images: FolderImages, network: Any) -> Predictions | None:
    """Let a bundle infer images, evenly spread over the list.

    Args:
        images: as the model is to see them.
        network: the bundle's.

    Returns:
        None where its outputs are not of classes, as those of a model that needs whole videos.
    """
    device = next(network.parameters()).device
    first = images.infer(images[0]["image"][None].to(device), network)[0]
    form = _form(first, images.classes)
    if form is None:
        return None
    names, several, logits = form
    places, each = spread(len(images), MOST_OF_AXES[first.ndim - 1]).tolist(), list[Prediction]()
    for batch in of_one_shape(images[place]["image"] for place in places):
        outputs = images.infer(torch.stack(batch).to(device), network).float().cpu()
        for values in outputs.softmax(dim=1) if logits else outputs:
            said = values.argmax(dim=0).to(torch.uint8) if values.ndim > 1 else values
            place = places[len(each)]
            each.append(Prediction(place, entropy(values, several), classes_called(values, several), said))
    return Predictions(names, several, tuple(each))


def _form(output: Tensor, classes: Sequence[str]) -> tuple[tuple[str, ...], bool, bool] | None:
    """Return names of the channels, whether several may be there at once, and whether the values are logits."""
    count = len(output)
    if classes and count not in (len(classes), len(classes) + 1):
        return None
    named = classes or [str(number) for number in range(count)]
    names = tuple(named) if count == len(named) else ("background", *named)
    if float(output.min()) < 0 or float(output.max()) > 1 + TOLERANCE:
        return names, False, True
    sums = bool(((output.sum(dim=0) - 1).abs() < TOLERANCE).all())
    return names, not sums, False


@dataclass(frozen=True)
class Decision:
    """Decision on one adaptation.

    Attributes:
        name: of :data:`ADAPTATIONS`.
        made: whether it is.
        why: a reason, without the end of a sentence.
        settings: of the bundle's inference that it sets.
        doubted: whether it was left out for what the model called after it, or made in spite of that.
        failed: whether the images cannot be looked at so, as black ones for their colours.
    """

    name: str
    made: bool
    why: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    doubted: bool = False
    failed: bool = False


@dataclass(frozen=True)
class Adapted:
    """A model before and after.

    Attributes:
        decisions: one for each of :data:`ADAPTATIONS`.
        images, shown: the images as the bundle came, and as it sees them now.
        network: after.
        before, after: what it says; None where that is not of classes.
        layers: name -> statistics, as they were measured; empty where the network has none.
        share: of the images' own in the statistics that were written, 0 to 1; 0 where none were.
    """

    decisions: tuple[Decision, ...]
    images: FolderImages
    shown: FolderImages
    network: nn.Module
    before: Predictions | None
    after: Predictions | None
    layers: Mapping[str, LayerStatistics]
    share: float

    @property
    def settings(self) -> dict[str, Any]:
        """Changed settings of the bundle's inference."""
        return {key: value for one in self.decisions if one.made for key, value in one.settings.items()}

    @property
    def made(self) -> list[str]:
        """Names of the adaptations that were made."""
        return [one.name for one in self.decisions if one.made]


def adapt_to(
    images: FolderImages, references: Mapping[str, Tensor], known: Collection[str], chosen: Collection[str]
) -> Adapted:
    """Decide on each adaptation, and make those that are to be made.

    Args:
        images: the hospital's, with the bundle's settings as for images of the training hospitals.
        references: what the bundle carries of these.
        known: settings that the bundle's own inference has.
        chosen: names of :data:`ADAPTATIONS`, which are made whatever speaks against them; empty = each decides itself.
    """
    network = images.network()
    before = predictions(images, network)
    shown, now, decisions = images, before, list[Decision]()
    for name in (INTENSITY, COLOUR):
        decision = Decision(name, False, UNASKED)
        if not chosen or name in chosen:
            decision = _of_images(name, images, references, known, forced=name in chosen)
        if decision.made:
            seen = images.with_settings(decision.settings)
            said = predictions(seen, network)
            decision = _judged(decision, now, said, forced=name in chosen)
            shown, now = (seen, said) if decision.made else (shown, now)
        decisions.append(decision)
    layers: dict[str, LayerStatistics] = {}
    decision, share, adapted = Decision(STATISTICS, False, UNASKED), 0.0, network
    if not chosen or STATISTICS in chosen:
        layers = _measured(shown, network)
        decision = _of_layers(layers, forced=STATISTICS in chosen)
    if decision.made:
        count, adapted = min(len(shown), MOST), copy.deepcopy(network)
        statistics.adapt(adapted, layers, count, PRIOR)
        said = predictions(shown, adapted)
        decision = _judged(decision, now, said, forced=STATISTICS in chosen)
        if decision.made:
            now, share = said, count / (count + PRIOR)
        else:
            adapted = network
    return Adapted((*decisions, decision), images, shown, adapted, before, now, layers, share)


def _of_images(
    name: str, images: FolderImages, references: Mapping[str, Tensor], known: Collection[str], forced: bool
) -> Decision:
    """Decide whether images are shown brighter or darker, or in other colours."""
    setting, reference = SETTINGS[name][0], references.get(REFERENCES[name])
    if setting not in known:
        return Decision(name, False, f"this bundle's inference has no '{setting}'")
    if reference is None:
        why = f"the bundle carries no '{REFERENCES[name]}' of the hospitals that it was trained at"
        return Decision(name, False, why)
    pictures = OwnImages(images).spread()
    decide = _of_gamma if name == INTENSITY else _of_colours
    try:
        return decide(pictures, reference, forced)
    except DataError as error:
        return Decision(name, False, str(error).partition("; leave")[0], failed=True)


def _of_gamma(images: Iterator[Tensor], reference: Tensor, forced: bool) -> Decision:
    whole = matching_gamma(histogram(images), reference)
    if whole == 1 or (1 / gamma.ALIKE <= whole <= gamma.ALIKE and not forced):
        why = f"these images are nearly as bright as those of the training (a gamma of {whole:.2f})"
        return Decision(INTENSITY, False, why)
    used = whole**gamma.SHARE
    why = f"a gamma of {used:.2f}, half of the way to the brightness of the training's images ({whole:.2f})"
    return Decision(INTENSITY, True, why, {"image_gamma": used})


def _of_colours(images: Iterator[Tensor], reference: Tensor, forced: bool) -> Decision:
    local, wanted = colours(images), Colours.of(reference.view(3, 3))
    away = distance(local, wanted)
    why = f"these colours lie {away:.2g} times as far from those of the training as one image from another"
    if away <= colour.ALIKE and not forced:
        return Decision(COLOUR, False, why)
    pair = torch.stack([local.stacked(), wanted.stacked()])[:, :2]
    return Decision(COLOUR, True, why, {"image_colours": pair.tolist()})


def _measured(shown: FolderImages, network: nn.Module) -> dict[str, LayerStatistics]:
    """Measure statistics as ``OwnStatistics`` does at a site of a federation; DataError for too few or equal images."""
    if statistics.normalisation_layers(network) and len(shown) < statistics.FEWEST:
        raise DataError(f"statistics need {statistics.FEWEST} images or more, and {shown.folder} has {len(shown)}")
    device = next(network.parameters()).device
    batches = (torch.stack(some).to(device) for some in of_one_shape(OwnImages(shown).spread()))
    return statistics.own_statistics(network, lambda images: shown.infer(images, network), batches)


def _of_layers(layers: Mapping[str, LayerStatistics], forced: bool) -> Decision:
    if not layers:
        return Decision(STATISTICS, False, "the network has no BatchNorm layer, whose statistics could be adapted")
    away = statistics.mean_distance(dict(layers))
    why = f"features lie {away:.2g} deviations from those of the training, the mean of {len(layers)} layers"
    if away <= DEAD_ZONE and not forced:
        return Decision(STATISTICS, False, f"{why}; from {DEAD_ZONE:g} on they are adapted")
    return Decision(STATISTICS, math.isfinite(away), why)


def _judged(decision: Decision, before: Predictions | None, after: Predictions | None, forced: bool) -> Decision:
    """Return the decision, or the opposite where what the model calls after it speaks against it."""
    if before is None or after is None:
        return decision
    against = objection(before.called, after.called)
    if not against:
        return decision
    why = f"{decision.why}; but {against}"
    if forced:
        return replace(decision, why=f"{why}. It was asked for", doubted=True)
    return replace(decision, made=False, why=f"{why}. --adaptation {decision.name} makes it all the same", doubted=True)
