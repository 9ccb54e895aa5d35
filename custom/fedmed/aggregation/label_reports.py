"""What sites report beside an update for the mean of the labelled sites and what others add to it."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from fedmed.aggregation.contribution import Contribution
from fedmed.aggregation.reported import check_number
from fedmed.aggregation.weighting import Reasons, SampleWeighting
from fedmed.errors import UpdateRefused

SHARE = "agreed_share"  # of a site without labels: share of voxels, or images, on which the two models agree
CONFIDENCE = "label_confidence"  # of a labelled one: for each class a quantile of its confidence where it is right
SHARES = "label_shares"  # of a labelled one: share of each class among its training labels
SCORES = "mean_scores"  # of a labelled one: score of the model with what sites without labels added, and without


class AgreedSamples(SampleWeighting):
    """By training images times the share on which the models agree; without a share by images."""

    kind = "agreed samples"

    def of_trained(self, updates: Sequence[Contribution], user_weights: Mapping[str, float]) -> dict[str, float]:
        """Images times share."""
        images = super().of_trained(updates, user_weights)
        return {update.site: images[update.site] * agreed_share(update) for update in updates}


def class_numbers(updates: Sequence[Contribution], name: str) -> Tensor | None:
    """The mean over sites of a number for each class, (C,) in [0, 1]; None where none sends it, or sizes differ."""
    found = [update.extras[name] for update in updates if name in update.extras]
    return torch.stack(found).clamp(0, 1).mean(dim=0) if len({len(numbers) for numbers in found}) == 1 else None


def agreed_share(update: Contribution) -> float:
    """What the site reports, 1 where it reports nothing."""
    return float(update.extras.get(SHARE, 1.0))


def mean_scores(updates: Sequence[Contribution]) -> dict[str, tuple[float, float]]:
    """(with, without) of each site that judged, in the order of the updates."""
    judging = (
        (update.site, update.extras[SCORES].clamp(0, 1).tolist()) for update in updates if SCORES in update.extras
    )
    return {site: (with_all, without) for site, (with_all, without) in judging}


def score_facts(scores: Mapping[str, tuple[float, float]]) -> dict[str, float]:
    """The mean scores with and without, for the round's record; {} where nobody judged."""
    if not scores:
        return {}
    with_all, without = (math.fsum(column) / len(scores) for column in zip(*scores.values(), strict=True))
    return {"score_with": with_all, "score_without": without}


def check_reports(update: Contribution) -> None:
    """Refuse reported values out of their range; NaN is in no range. Arrays may be a little beyond it, by noise.

    Raises:
        UpdateRefused: names the site and the value.
    """
    if SHARE in update.extras:
        check_number(update, SHARE, lambda share: None if 0 <= share <= 1 else "from 0 to 1")
    for name, size in ((CONFIDENCE, None), (SHARES, None), (SCORES, 2)):
        value = update.extras.get(name)
        if value is None:
            continue
        fits = isinstance(value, Tensor) and value.ndim == 1 and len(value) and size in (None, len(value))
        if not fits or not bool(((value >= -1) & (value <= 2)).all()):  # a site may have added noise
            wanted = "numbers from 0 to 1" if size is None else f"{size} numbers from 0 to 1"
            raise UpdateRefused(update.site, f"its '{name}' is {_short(value)}; it must be {wanted}")


def unusual(
    labelled: Sequence[Contribution], others: Sequence[Contribution], moving: Sequence[Contribution], judged: bool
) -> Reasons:
    """What of the reports is missing or 0, and what follows from it, for the round's record.

    Args:
        labelled: updates of labelled sites.
        others: those of sites without labels.
        moving: those of them that count.
        judged: whether labelled sites were asked to judge.
    """
    counted = {update.site for update in moving}
    found = [
        ([u.site for u in others if u.site not in counted and u.n_steps], "the models agree nowhere in its images; "
         "it does not count in this round"),
        ([u.site for u in others if SHARE not in u.extras], f"does not send '{SHARE}' (privacy.allowed_extras in its "
         "settings); it counts by its images alone"),
    ]  # fmt: skip
    if judged and not any(SCORES in update.extras for update in labelled):
        found.append(
            ([u.site for u in labelled], f"no labelled site sends '{SCORES}'; nobody judges what the others add")
        )
    return [(sites, reason) for sites, reason in found if sites]


def ungated(labelled: Sequence[Contribution], fixed: float) -> Reasons:
    """Which labelled sites tell no confidence, and from where on a voxel counts then, for the round's record."""
    silent = [update.site for update in labelled if CONFIDENCE not in update.extras]
    no_number = f"does not send '{CONFIDENCE}' (no validation, or privacy.allowed_extras in its settings)"
    if class_numbers(labelled, CONFIDENCE) is not None:
        return [(silent, f"{no_number}; the gate is that of the others")] if silent else []
    why = no_number if silent else f"sends '{CONFIDENCE}' of another number of classes than others"
    sites = silent or [update.site for update in labelled]
    return [(sites, f"{why}; voxels count from a fixed probability of {fixed:g} on")]


def _short(value: object) -> str:
    text = f"a tensor of shape {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
