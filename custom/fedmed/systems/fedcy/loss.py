"""Cycles between two clips: from a frame to its like in the other clip and back (Dwibedi et al. 2019; Kassem 2023)."""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fedmed.errors import FedMedError
from fedmed.in_range import in_range

SIMILARITIES, INDICES = ("cosine", "l2_scaled"), ("position", "normalised", "frame_time")
TINY = 1e-8  # the least norm of features: the cosine of a zero vector is 0


@dataclass(frozen=True)
class Cycles:
    """Measures of the way that the frames of some clips took; scalars.

    Attributes:
        loss: of Eq. 2 and 3 of :class:`CycleConsistencyLoss`.
        error: mean of (k − μ)², in places squared.
        variance: the smallest σ² before its floor, in places squared.
        back: share of frames whose likeliest place to return to is theirs or next to it.
        chance: what ``back`` would be in the mean if each clip's frames were put in a random order, which leaves them
            as like one another as they are: so much of it says nothing of time.
    """

    loss: Tensor
    error: Tensor
    variance: Tensor
    back: Tensor
    chance: Tensor


@dataclass(frozen=True)
class CycleConsistencyLoss:
    """A frame of one clip, by way of its soft nearest neighbour in another, comes back to its own place.

    Kassem et al. 2023, Eq. 1 and 2, after Dwibedi et al. 2019: a frame u_k of clip U, by way of clip V and back::

        (1)  α = softmax_i(Q(u_k, v_i) / τ),  ṽ = Σ_i α_i v_i,  β = softmax_j(Q(ṽ, u_j) / τ)
        (2)  μ = Σ_j β_j j,  σ² = Σ_j β_j (j − μ)²,  ℓ = (k − μ)² / σ² + λ_σ log σ²

    It is not bounded below, so σ² has a floor; negative losses are normal. The order of V's frames has no influence.
    k and j are constants: gradients exist for features alone.

    Args:
        temperature: τ > 0.
        variance_weight: λ_σ; no paper prints one, this is the default of Dwibedi's reference.
        similarity: Q: ``cosine``, or ``l2_scaled``, −‖a − b‖² / D as in the reference.
        index: what j is: ``position``, 1 to n; ``normalised``, j / n; or ``frame_time``, the share of the video that
            lies before the frame.
        floor: least σ² in places squared. Where indices count parts of a clip or video, it is divided by n², so that it
            acts on the same frames.

    Raises:
        FedMedError: a value outside its range; when called, features or times of another shape.
    """

    temperature: float = 0.05
    variance_weight: float = 0.001
    similarity: str = "cosine"
    index: str = "position"
    floor: float = 1e-6

    def __post_init__(self) -> None:
        in_range("temperature", self.temperature, above=0)
        in_range("variance_weight", self.variance_weight, least=0)
        in_range("floor", self.floor, above=0)
        for name, value, known in (("similarity", self.similarity, SIMILARITIES), ("index", self.index, INDICES)):
            if value not in known:
                raise FedMedError(f"CycleConsistencyLoss: {name} is '{value}'; use {' or '.join(known)}")

    def __call__(self, clips: Tensor, times: Tensor | None = None) -> Cycles:
        """Compare every clip with every other, there and back.

        Args:
            clips: features (C, k, D) of C ≥ 2 clips of k frames in the order of time, of any float type; everything is
                computed in float32, or in float64 if they are.
            times: (C, k), for ``frame_time`` alone: the share of its video that lies before each frame, [0, 1].

        Returns:
            The loss is the mean over all pairs of clips of L(U, V) = mean_k ℓ(u_k; V) + mean_k ℓ(v_k; U), Eq. 3.
        """
        if clips.ndim != 3 or len(clips) < 2:
            raise FedMedError(
                f"clips have features of shape {tuple(clips.shape)}; give (C, k, D) of at least 2 clips: a batch_size "
                "of 2 or more, which the site's max_batch_size must not cut to 1"
            )
        first, second = torch.nonzero(~torch.eye(len(clips), dtype=torch.bool, device=clips.device), as_tuple=True)
        cycles = self.there_and_back(clips[first], clips[second], None if times is None else times[first])
        # Both directions of a pair are among the ordered pairs, whose mean is half of the sum of two means.
        return replace(cycles, loss=2 * cycles.loss)

    def there_and_back(self, starts: Tensor, through: Tensor, times: Tensor | None = None) -> Cycles:
        """From each frame of ``starts`` (P, n, D) by way of ``through`` (P, m, D); times as above, (P, n), of starts.

        The loss is the mean of ℓ, one direction alone.
        """
        starts, through = (rows if rows.dtype == torch.float64 else rows.float() for rows in (starts, through))
        alpha = (self._similar(starts, through) / self.temperature).softmax(dim=2)
        beta = (self._similar(alpha @ through, starts) / self.temperature).softmax(dim=2)  # (P, n, n)
        size = beta.shape[1]
        place = torch.arange(1, size + 1, device=beta.device)
        index, unit = self._index(place.to(beta), times, size)
        mean = (beta * index[..., None, :]).sum(dim=2)
        variance = (beta * (index[..., None, :] - mean[..., None]).square()).sum(dim=2)
        floored = variance.clamp(min=self.floor * unit**2)
        error = (index - mean).square()
        loss = (error / floored + self.variance_weight * floored.log()).mean()
        away = (beta.argmax(dim=2) + 1 - place).abs()
        back, same = (away <= 1).float().mean(), (away == 0).float().mean()
        # In a random order a frame that came back to itself still does; two others are neighbours with chance 2 / n.
        chance = same + (1 - same) * 2 / size
        return Cycles(loss, error.detach().mean() / unit**2, variance.detach().amin() / unit**2, back, chance)

    def _index(self, place: Tensor, times: Tensor | None, size: int) -> tuple[Tensor, float]:
        """The index of each frame, (n,) or (P, n), and how much of it one place of a clip is."""
        if self.index == "position":
            return place, 1.0
        if self.index == "normalised":
            return place / size, 1 / size
        if times is None or times.shape[-1] != size:
            raise FedMedError(
                f"index 'frame_time' needs the times of {size} frames a clip, "
                f"{'none came' if times is None else f'they have shape {tuple(times.shape)}'}; use 'position', or a "
                "loader that gives 'part'"
            )
        return times.detach().to(place), 1 / size

    def _similar(self, one: Tensor, other: Tensor) -> Tensor:
        """Q of all pairs of rows: (P, n, D) and (P, m, D) to (P, n, m)."""
        if self.similarity == "cosine":
            one, other = (F.normalize(rows, dim=2, eps=TINY) for rows in (one, other))
            return one @ other.mT
        return -(one[:, :, None] - other[:, None]).square().mean(dim=3)


def feature_spread(clips: Tensor) -> Tensor:
    """Return how unlike the frames of a clip are: 1 − mean cosine of two of them, 0 where all are the same.

    ``clips`` are features (C, k, D), k ≥ 2. The result is the mean over the clips, a detached scalar.
    """
    unit, size = F.normalize(clips.detach().float(), dim=2, eps=TINY), clips.shape[1]
    total = unit.sum(dim=1).square().sum(dim=1) - unit.square().sum(dim=(1, 2))
    return 1 - (total / (size * (size - 1))).mean()


def nt_xent(features: Tensor, labels: Tensor, temperature: float = 0.1) -> Tensor:
    """Draw frames of one class together and away from those of other classes: Kassem et al. 2023, Eq. 4 and 5.

    For an anchor a and another frame p of its class, F_n being the frames of all other classes::

        (4)  ℓ(a, p) = −log( e^(cos(a, p) / τ) / (e^(cos(a, p) / τ) + Σ_{f in F_n} e^(cos(a, f) / τ)) )
        (5)  L = mean of ℓ over all ordered pairs (a, p) of one class

    Further frames of the anchor's class are not in the denominator, unlike in SupCon (arXiv 2004.11362). L is 0 or
    more. Without two frames of one class, or with one class alone, it is 0, and so are its gradients.

    Args:
        features: (B, D), of any float type; computed in float32, or in float64 if they are.
        labels: (B,) whole numbers.
        temperature: τ > 0.

    Raises:
        FedMedError: shapes do not fit, or the temperature is not positive.
    """
    if temperature <= 0:
        raise FedMedError(f"NT-Xent: temperature is {temperature}; use a positive number, such as 0.1")
    if features.ndim != 2 or labels.shape != features.shape[:1]:
        raise FedMedError(f"NT-Xent: shapes {tuple(features.shape)} and {tuple(labels.shape)}; give (B, D) and (B,)")
    features = features if features.dtype == torch.float64 else features.float()
    unit = F.normalize(features, dim=1, eps=TINY)
    similar = unit @ unit.T / temperature
    same = labels[:, None] == labels[None, :]
    positive = same & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    # The smallest number, not −inf: of a batch without negatives the gradient would not be a number.
    negatives = similar.masked_fill(same, torch.finfo(similar.dtype).min).logsumexp(dim=1, keepdim=True)
    losses = F.softplus(negatives - similar)  # Eq. 4 of every pair, divided by e^(cos(a, p) / τ)
    return (losses * positive).sum() / positive.sum().clamp(min=1)  # Eq. 5
