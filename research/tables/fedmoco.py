"""Tables of FedMoCo (Dong & Voiculescu 2021): the weights of nodes, and how learning slows."""

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from research.runner.from_functions import about_rounds
from research.runner.round_history import RoundHistory, thirds


@about_rounds
def node_weight(histories: Mapping[int, RoundHistory], node: Annotated[int, Field(ge=1)]) -> tuple[str, list[bool]]:
    """The mean weight of a node, by its place among the arm's, from 1, is below its share of the images."""
    parts, signs = [], []
    for seed, history in histories.items():
        share, weights = history.shares.iloc[node - 1], history.weights[:, node - 1]
        mean, lowered = float(weights.mean()), int((weights < share).sum())
        signs.append(bool(mean < share))
        parts.append(f"seed {seed}: {mean:.3f} (below in {lowered} of {len(weights)} rounds)")
    shares = histories[min(histories)].shares
    name, share = shares.index[node - 1], shares.iloc[node - 1]
    return f"{name}: share of images {share:.3f}; mean weight, {'; '.join(parts)}", signs


@about_rounds
def slows(histories: Mapping[int, RoundHistory], value: str) -> tuple[str, list[bool]]:
    """Learning slows down: the similarity r of a node's models, the metric ``value``, rises, and weights flatten.

    Looked at are the mean r over the nodes, and the largest less the smallest weight, in the first and the last third
    of the rounds.
    """
    parts, signs = [], []
    for seed, history in histories.items():
        if history.reported is None:
            return "r was not measured", []
        spread = history.weights.max(1) - history.weights.min(1)
        (r0, r1), (s0, s1) = thirds(history.reported.mean(1)), thirds(spread)
        signs += [r1 > r0, s1 < s0]
        parts.append(f"seed {seed}: r {r0:.3f} → {r1:.3f}, spread of weights {s0:.3f} → {s1:.3f}")
    return f"first → last third of the rounds, {'; '.join(parts)}", signs
