"""Which image a reader should label next: scores that are computed once, and turns that two readers do not share."""

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedmed.errors import FedMedError

log = logging.getLogger("fedmed.labelling")

STORED = "fedmed"  # key of an image's information in MONAI Label's datastore
MAX_SAMPLES = 8
MAX_SECONDS = 60.0
RESERVED = 600.0


@dataclass(frozen=True)
class RequestLimits:
    """What one request may cost, and how long an image that was handed out is kept from others.

    Attributes:
        max_samples: images that are scored in one request, at least 1.
        max_seconds: no further image is begun after this time.
        reserved: seconds.
    """

    max_samples: int = MAX_SAMPLES
    max_seconds: float = MAX_SECONDS
    reserved: float = RESERVED

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> "RequestLimits":
        """Read them from a request; what is not named keeps its default.

        Raises:
            FedMedError: not a number, or below what makes sense.
        """
        least = {"max_samples": 1, "max_seconds": 0, "reserved": 0}
        values = {}
        for name, smallest in least.items():
            if request.get(name) is None:
                continue
            try:
                values[name] = type(getattr(cls, name))(request[name])
            except (TypeError, ValueError) as error:
                raise FedMedError(f"'{name}' is {request[name]!r}; give a number") from error
            if not values[name] >= smallest:
                raise FedMedError(f"'{name}' is {request[name]}; give a number from {smallest}")
        return cls(**values)


@dataclass(frozen=True)
class Images:
    """The images without a label, as MONAI Label's datastore knows them.

    Attributes:
        ids: their names.
        path: id -> image file; may fetch it, so it is asked for those only that are scored.
        info: id -> what is known of the image.
        keep: called with an id and an entry to add to that.
    """

    ids: Sequence[str]
    path: Callable[[str], Path]
    info: Callable[[str], Mapping[str, Any]]
    keep: Callable[[str, dict[str, Any]], None]


@dataclass
class Scorer:
    """Scores of one strategy under one model.

    Args:
        name: of the strategy.
        model: name and version of the model; part of the record of a correction.
        weights: file of the model.
        settings: what else the score depends on, such as the augmentation.
        score: image file -> score; higher is labelled first.
    """

    name: str
    model: str
    weights: Path
    settings: str
    score: Callable[[Path], float]
    _failed: dict[str, str] = field(default_factory=dict)

    def known(self, images: Images, image: str) -> tuple[bool, float | None]:
        """Whether there is nothing to compute, and the score; None for an image that could not be scored."""
        entry = images.info(image).get(STORED, {}).get(self.name)
        if entry and entry.get("of") == self.identity(images.path(image)):
            return True, entry["score"]
        failed = image in self._failed and self._failed[image] == self.identity(images.path(image))
        return failed, None

    def compute(self, images: Images, image: str) -> float | None:
        """Score an image and keep the score, or None if that is impossible: then the reason is logged."""
        identity = ""
        try:
            path = images.path(image)
            identity = self.identity(path)
            score = float(self.score(path))
        except Exception as error:  # noqa: BLE001 - each file format's reader has exceptions of its own
            self._failed[image] = identity
            reason = (str(error).strip() or type(error).__name__).splitlines()[0]
            log.warning("%s: image '%s' cannot be scored and is passed over (%s)", self.name, image, reason)
            return None
        entry = {"score": score, "of": identity, "model": self.model}
        images.keep(image, {STORED: {**images.info(image).get(STORED, {}), self.name: entry}})
        return score

    def identity(self, image: Path) -> str:
        """Text that changes with the weights, the image and the settings."""
        facts = [self.settings, self.model, *(_facts(path) for path in (self.weights, image))]
        return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Choice:
    """The image to label next.

    Attributes:
        image: its id.
        score: its score.
        rank: 1 = the highest of those scored.
        scored, waiting: images with and without a score, of those without a label.
    """

    image: str
    score: float
    rank: int
    scored: int
    waiting: int


def choose(
    scorer: Scorer,
    images: Images,
    limits: RequestLimits = RequestLimits(),  # noqa: B008 - frozen
    now: Callable[[], float] = time.time,
) -> Choice | None:
    """Score what has no score yet, within the limits, and choose the highest.

    Images are scored in an order that has nothing to do with their names, so those scored first are a fair sample.
    Later requests go on where this one ended.

    Args:
        scorer: of this strategy and model.
        images: those without a label.
        limits: of this request.
        now: the time in seconds.

    Returns:
        The image with the highest score that was not handed out during the last ``limits.reserved`` seconds; if all
        were, the one handed out longest ago. None if there is no image, or none that can be scored.
    """
    known = {image: scorer.known(images, image) for image in images.ids}
    scores = {image: score for image, (done, score) in known.items() if done}
    waiting = [image for image in _shuffled(images.ids) if image not in scores]
    begin = now()
    for done, image in enumerate(waiting[: limits.max_samples]):
        if done and now() - begin > limits.max_seconds:
            break
        scores[image] = scorer.compute(images, image)
        log.info("%s: %d of %d images without a score done", scorer.name, done + 1, len(waiting))
    left = len(images.ids) - len(scores)
    if left:
        log.info("%s: %d images have no score yet; the next request goes on with them", scorer.name, left)
    ranked = sorted((i for i, score in scores.items() if score is not None), key=lambda i: (-scores[i], i))
    if not ranked:
        log.warning("%s: none of %d images without a label has a score", scorer.name, len(images.ids))
        return None
    served = {image: _served(images.info(image)) for image in ranked}
    free = [image for image in ranked if now() - served[image] >= limits.reserved]
    image = free[0] if free else min(ranked, key=lambda image: served[image])
    return Choice(image, scores[image], ranked.index(image) + 1, len(ranked), left)


def _served(info: Mapping[str, Any]) -> float:
    """When any strategy handed an image out last; MONAI Label writes this."""
    return max((entry.get("ts", 0) for entry in info.get("strategy", {}).values()), default=0)


def _shuffled(images: Iterable[str]) -> list[str]:
    return sorted(images, key=lambda image: hashlib.sha256(image.encode()).digest())


def _facts(path: Path) -> str:
    try:
        facts = os.stat(path)
    except OSError:
        return "absent"
    return f"{facts.st_size}-{facts.st_mtime_ns}"
