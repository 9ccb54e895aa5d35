"""Checks of what people write in a table's or a federation's YAML, before any of it is used."""

import math
from collections.abc import Mapping
from typing import Any

from fedmed.errors import JobError
from fedmed.jobs.plan import TRAINING_ROLES


def require(holds: bool, key: str, value: Any, what: str) -> None:
    """Refuse a value with the reason.

    Raises:
        JobError: ``holds`` is false.
    """
    if not holds:
        raise JobError(f"'{key}' is {value!r}; it must be {what}")


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def check_seeds(seeds: Any) -> None:
    """At least one seed and none twice: a seed counts once in every mean and test."""
    good = _is_list(seeds) and all(is_whole(seed, 0) for seed in seeds) and len(set(seeds)) == len(seeds) > 0
    require(good, "seeds", seeds, "a list of different whole numbers, 0 or more, such as [0, 1, 2]")


def check_names(key: str, names: Any) -> None:
    good = _is_list(names) and all(isinstance(name, str) for name in names) and len(set(names)) == len(names) > 0
    require(good, key, names, "a list of different names, such as [site_1, site_2]")


def check_overrides(overrides: Any) -> None:
    """A role that nobody has would leave an arm as it was, under a name that says otherwise."""
    good = isinstance(overrides, Mapping) and all(isinstance(own, Mapping) for own in overrides.values())
    good = good and set(overrides) <= set(TRAINING_ROLES)
    require(good, "overrides", overrides, f"settings below {' or '.join(TRAINING_ROLES)}")


def check_mapping(key: str, value: Any, what: str, of: type | None = None) -> None:
    good = isinstance(value, Mapping) and (of is None or all(isinstance(each, of) for each in value.values()))
    require(good, key, value, what)


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)
