"""What the rounds of a pre-training recorded: representation similarity r and aggregation weights of every node."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from fedmed.errors import DataError
from fedmed.experiments.verdicts import CONTRARY, HOLDS, OPEN


@dataclass(frozen=True)
class History:
    """Good rounds of one run, nodes in the arm's order.

    Attributes:
        nodes: names, (K,).
        images: training images of each node, (K,).
        weights: coefficients of the aggregate, (T, K).
        rsa: r of each node, (T, K); None for a method that does not measure it.
    """

    nodes: tuple[str, ...]
    images: np.ndarray
    weights: np.ndarray
    rsa: np.ndarray | None


@dataclass(frozen=True)
class Dynamics:
    """What a claim about rounds found for one arm.

    Attributes:
        arm: name.
        words: the numbers.
        outcome: as of a comparison.
    """

    arm: str
    words: str
    outcome: str


def read_history(path: Path, images: Mapping[str, int]) -> History:
    """Read ``rounds.jsonl`` of a finished run.

    Args:
        path: the file.
        images: node -> number of training images, in the arm's order.

    Raises:
        DataError: the file is missing or damaged; names it and the folder to remove.
    """
    nodes = tuple(images)
    try:
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        good = [line for line in lines if set(nodes) <= set(line["coefficients"])]
        weights = np.array([[line["coefficients"][node] for node in nodes] for line in good])
        extras = [line.get("extras", {}) for line in good]
        measured = all(_rsa(extra, node) is not None for extra in extras for node in nodes)
        rsa = np.array([[_rsa(extra, node) for node in nodes] for extra in extras], float) if measured else None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path}: the rounds of a finished run cannot be read ({error}); remove {path.parents[3]}"
        ) from error
    return History(nodes, np.array(list(images.values()), float), weights, rsa if len(good) else None)


def _rsa(extras: Mapping, node: str) -> float | None:
    return extras.get(node, {}).get("rsa")


def weight_of_node(arm: str, histories: Mapping[int, History], node: int) -> Dynamics:
    """The mean weight of a node (its place, from 1) beside its share of the images."""
    place, parts, signs = node - 1, [], []
    for seed, history in sorted(histories.items()):
        share = history.images[place] / history.images.sum()
        mean = float(history.weights[:, place].mean())
        lowered = int((history.weights[:, place] < share).sum())
        signs.append(mean < share)
        parts.append(f"seed {seed}: {mean:.3f} (below in {lowered} of {len(history.weights)} rounds)")
    name = histories[min(histories)].nodes[place]
    share = histories[min(histories)].images[place] / histories[min(histories)].images.sum()
    return Dynamics(arm, f"{name}: share of images {share:.3f}; mean weight, {'; '.join(parts)}", _outcome(signs))


def slowing(arm: str, histories: Mapping[int, History], _: int = 1) -> Dynamics:
    """Mean r over the nodes, and largest less smallest weight, in the first and the last third of the rounds."""
    parts, signs = [], []
    for seed, history in sorted(histories.items()):
        if history.rsa is None:
            return Dynamics(arm, "r was not measured", OPEN)
        spread = history.weights.max(1) - history.weights.min(1)
        (r0, r1), (s0, s1) = thirds(history.rsa.mean(1)), thirds(spread)
        signs += [r1 > r0, s1 < s0]
        parts.append(f"seed {seed}: r {r0:.3f} → {r1:.3f}, spread of weights {s0:.3f} → {s1:.3f}")
    return Dynamics(arm, f"first → last third of the rounds, {'; '.join(parts)}", _outcome(signs))


def thirds(values: np.ndarray) -> tuple[float, float]:
    """Means of the first and the last third, at least one value each."""
    n = max(1, len(values) // 3)
    return fmean(values[:n]), fmean(values[-n:])


def _outcome(signs: list[bool]) -> str:
    if signs and all(signs):
        return HOLDS
    return CONTRARY if signs and not any(signs) else OPEN
