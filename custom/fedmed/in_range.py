"""Numbers among a job's settings."""

import math
from typing import Any

from fedmed.errors import JobError


def in_range(
    name: str,
    value: Any,
    least: float = -math.inf,
    above: float = -math.inf,
    below: float = math.inf,
    most: float = math.inf,
    of: str = "",
) -> float:
    """Return a setting as a number.

    Args:
        name, of: how an error calls it: ``'name'``, then ``of``, such as `` of the server's optimizer``.
        least, above, below, most: its bounds; the first and the last may be reached.

    Raises:
        JobError: it is not a finite number, or outside its bounds.
    """
    if type(value) in (int, float) and math.isfinite(value) and least <= value <= most and above < value < below:
        return float(value)
    bounds = [f"above {above:g}"] * (above > -math.inf) + [f"of at least {least:g}"] * (least > -math.inf)
    bounds += [f"below {below:g}"] * (below < math.inf) + [f"of at most {most:g}"] * (most < math.inf)
    hint = " (in YAML write 1.0e-3, not 1e-3)" if isinstance(value, str) else ""
    raise JobError(f"'{name}'{of} is {value!r}{hint}; give a number {' and '.join(bounds)}")
