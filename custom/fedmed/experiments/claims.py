"""What a table is expected to show, read from its YAML.

    claims:
    - id: 4
      text: An unsupervised learning rate near the supervised one lowers Dice at both sites
      holds:
      - {better: lr 5e-6, worse: lr 1e-4, sites: [site_1, site_2]}

A line of ``holds`` may name a ``list`` (``test``, ``valid``) and a ``model`` (``last``, ``selected``); a claim with
``report: true`` has its numbers shown and is not judged.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fedmed.errors import JobError
from fedmed.experiments.scores import LISTS, MODELS

CLAIM_KEYS = {"id", "text", "holds", "report"}
PAIR_KEYS = {"better", "worse", "sites", "list", "model"}


@dataclass(frozen=True)
class Pair:
    """One directional comparison: the arm ``better`` is above the arm ``worse`` at a site."""

    better: str
    worse: str
    site: str
    list: str = "test"
    model: str = "last"


@dataclass(frozen=True)
class Claim:
    """A sentence and the comparisons that it stands or falls with.

    Attributes:
        id: its number or name.
        text: the sentence.
        pairs: at least one.
        report: numbers only, no verdict.
    """

    id: str
    text: str
    pairs: tuple[Pair, ...]
    report: bool = False


def check_claims(claims: Any, arms: Collection[str], sites: Collection[str]) -> list[Claim]:
    """Read claims and make sure, before anything runs, that they can be judged.

    Args:
        claims: the YAML's list.
        arms, sites: names that the claims may use.

    Raises:
        JobError: a malformed claim, or an unknown arm or site; names the claim.
    """
    parsed = parse_claims(claims)
    for claim in parsed:
        for pair in claim.pairs:
            for arm in (pair.better, pair.worse):
                if arm not in arms:
                    raise JobError(f"claim {claim.id}: '{arm}' is no arm; there are: {', '.join(arms)}")
            if pair.site not in sites:
                raise JobError(f"claim {claim.id}: '{pair.site}' is no site; there are: {', '.join(sites)}")
    return parsed


def parse_claims(claims: Any) -> list[Claim]:
    """Read the YAML's list; names are not looked at.

    Raises:
        JobError: a malformed claim, or an id twice.
    """
    if not isinstance(claims, list | tuple):
        raise JobError(f"claims are {type(claims).__name__}; write a list, each with id, text and holds")
    parsed = [_claim(claim, f"claim {place + 1} of the list") for place, claim in enumerate(claims)]
    ids = [claim.id for claim in parsed]
    if twice := [one for one in ids if ids.count(one) > 1]:
        raise JobError(f"claim {twice[0]} is there twice; give each its own id")
    return parsed


def _claim(content: Any, where: str) -> Claim:
    _check_keys(content, CLAIM_KEYS, {"id", "text", "holds"}, where)
    where, holds, report = f"claim {content['id']}", content["holds"], content.get("report", False)
    if not isinstance(holds, list) or not holds:
        raise JobError(f"{where}: holds is {holds!r}; write a list of comparisons, at least one")
    if not isinstance(report, bool):
        raise JobError(f"{where}: report is {report!r}; write true or false")
    pairs = [pair for line in holds for pair in _pairs(line, where)]
    return Claim(str(content["id"]), str(content["text"]), tuple(pairs), report)


def _pairs(line: Any, where: str) -> list[Pair]:
    _check_keys(line, PAIR_KEYS, {"better", "worse", "sites"}, f"{where}, a line of holds")
    sites, rest = line["sites"], {key: str(value) for key, value in line.items() if key != "sites"}
    if not isinstance(sites, list) or not sites:
        raise JobError(f"{where}: sites is {sites!r}; write a list, at least one")
    pairs = [Pair(site=str(site), **rest) for site in sites]
    if rest["better"] == rest["worse"]:
        raise JobError(f"{where}: '{rest['better']}' is compared with itself; name two arms")
    for key, value, allowed in (("list", pairs[0].list, LISTS), ("model", pairs[0].model, MODELS)):
        if value not in allowed:
            raise JobError(f"{where}: {key} is '{value}'; use {' or '.join(allowed)}")
    return pairs


def _check_keys(content: Any, known: set[str], required: set[str], where: str) -> None:
    if not isinstance(content, Mapping):
        raise JobError(f"{where} is {content!r}; write a mapping with {', '.join(sorted(required))}")
    if missing := sorted(required - set(content)):
        raise JobError(f"{where} has no '{missing[0]}'; it needs {', '.join(sorted(required))}")
    if unknown := sorted(set(map(str, content)) - known):
        raise JobError(f"{where} has an unknown key '{unknown[0]}'; known are {', '.join(sorted(known))}")
