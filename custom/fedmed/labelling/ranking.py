"""Choice of the image to label next: scores that are computed once, and turns that two readers do not share."""

import hashlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fedmed.errors import FedMedError, first_line

log = logging.getLogger("fedmed.labelling")

STORED = "fedmed"  # key of an image's information in MONAI Label's datastore


@dataclass(frozen=True)
class RequestLimits:
    """Cost that one request may have, and how long an image that was handed out is reserved, in seconds."""

    max_samples: int = 8  # images that are scored in one request, 1 or more
    max_seconds: float = 60.0  # no further image is begun after this time
    reserved: float = 600.0

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> "RequestLimits":
        """Read them from a request; FedMedError for what is not a number, or too small."""
        values: dict[str, Any] = {}
        for name, kind, smallest in (("max_samples", int, 1), ("max_seconds", float, 0), ("reserved", float, 0)):
            if (given := request.get(name)) is None:
                continue
            try:
                values[name] = kind(given)
            except (TypeError, ValueError) as error:
                raise FedMedError(f"'{name}' is {given!r}; give a number") from error
            if not values[name] >= smallest:
                raise FedMedError(f"'{name}' is {given}; give a number from {smallest}")
        return cls(**values)


class Datastore(Protocol):
    """Calls to MONAI Label's datastore: of an image's id its file, which may be fetched, and its notes."""

    def get_image_uri(self, image_id: str) -> str: ...
    def get_image_info(self, image_id: str) -> dict[str, Any]: ...
    def update_image_info(self, image_id: str, info: dict[str, Any]) -> None: ...


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

    def known(self, store: Datastore, image: str) -> tuple[bool, float | None]:
        """Return True where there is nothing to compute, and the score; None for an image that could not be scored."""
        entry = store.get_image_info(image).get(STORED, {}).get(self.name) or {}
        if not entry and image not in self._failed:  # asking for the path may fetch the image
            return False, None
        identity = self.identity(Path(store.get_image_uri(image)))
        scored = entry.get("of") == identity
        return scored or self._failed.get(image) == identity, entry["score"] if scored else None

    def compute(self, store: Datastore, image: str) -> float | None:
        """Score an image and keep the score, or None if that is impossible: then the reason is logged."""
        identity = ""
        try:
            path = Path(store.get_image_uri(image))
            identity = self.identity(path)
            score = float(self.score(path))
        except Exception as error:  # noqa: BLE001 - each file format's reader has exceptions of its own
            self._failed[image] = identity
            log.warning("%s: image '%s' cannot be scored and is passed over (%s)", self.name, image, first_line(error))
            return None
        entry = {"score": score, "of": identity, "model": self.model}
        store.update_image_info(image, {STORED: {**store.get_image_info(image).get(STORED, {}), self.name: entry}})
        return score

    def identity(self, image: Path) -> str:
        """Text that changes with the weights, the image and the settings."""
        facts = [self.settings, self.model, *(_facts(path) for path in (self.weights, image))]
        return hashlib.sha256("\0".join(facts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Choice:
    """The id of the image to label next, and how many images without a label have a score and have none."""

    image: str
    score: float
    rank: int  # 1 = the highest of those scored
    scored: int
    waiting: int


def choose(
    scorer: Scorer,
    store: Datastore,
    images: Sequence[str],
    limits: RequestLimits,
    now: Callable[[], float] = time.time,
) -> Choice | None:
    """Score what has no score yet, within the limits, and choose the highest.

    Images are scored in an order that has nothing to do with their names, so those scored first are a fair sample.
    Later requests go on where this one ended.

    Args:
        scorer, limits: of this strategy and model, and of this request.
        store: what is known of the images; scores are kept there.
        images: ids of those without a label.
        now: the time in seconds.

    Returns:
        The image with the highest score that was not handed out during the last ``limits.reserved`` seconds; if all
        were, the one handed out longest ago. None if there is no image, or none that can be scored.
    """
    known = ((image, *scorer.known(store, image)) for image in images)
    scores = {image: score for image, done, score in known if done}
    shuffled = sorted(images, key=lambda image: hashlib.sha256(image.encode()).digest())
    waiting = [image for image in shuffled if image not in scores]
    begin = now()
    for done, image in enumerate(waiting[: limits.max_samples]):
        if done and now() - begin > limits.max_seconds:
            break
        scores[image] = scorer.compute(store, image)
        log.info("%s: %d of %d images without a score done", scorer.name, done + 1, len(waiting))
    left = len(images) - len(scores)
    if left:
        log.info("%s: %d images have no score yet; the next request goes on with them", scorer.name, left)
    valid = {image: score for image, score in scores.items() if score is not None}
    ranked = sorted(valid, key=lambda image: (-valid[image], image))
    if not ranked:
        log.warning("%s: none of %d images without a label has a score", scorer.name, len(images))
        return None
    since = {image: _handed_out(store.get_image_info(image)) for image in ranked}
    free = (image for image in ranked if now() - since[image] >= limits.reserved)
    image = next(free, min(ranked, key=lambda image: since[image]))
    return Choice(image, valid[image], ranked.index(image) + 1, len(ranked), left)


def _handed_out(info: Mapping[str, Any]) -> float:
    """Time at which any strategy handed an image out last; MONAI Label writes it."""
    return max((entry.get("ts", 0) for entry in info.get("strategy", {}).values()), default=0)


def _facts(path: Path) -> str:
    try:
        facts = path.stat()
    except OSError:
        return "absent"
    return f"{facts.st_size}-{facts.st_mtime_ns}"
