"""What a site allows to leave: the ``privacy`` block of its YAML. No job can loosen it."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from fedmed.errors import SiteConfigError

EXAMPLE = """\
    privacy:
      allowed_tensors: ['^convInit', '^down_layers']  # regular expressions; default: all that the job shares
      allowed_metrics: [val_dice, dice_mean, dice_std, n_cases]  # default: all scalars; [] sends none
      max_bytes: 20000000           # of one answer
      clip_norm: 1.0                # L2 norm of an update
      noise_multiplier: 2.0         # Gaussian noise with standard deviation noise_multiplier * clip_norm
      delta: 0.00001
      max_epsilon: 50               # the site stops answering before its account passes this
      allowed_extras: [rsa]         # a method's values beside the model; default: none
      extras_noise: 0.01            # Gaussian noise of this standard deviation in every array of them
      extras_min_images: 500        # fewest images that statistics among them are of; default: 2 for each feature
"""
DELTA = 1e-5


@dataclass(frozen=True)
class Privacy:
    """A site's own limits. The defaults limit nothing but extras.

    Attributes:
        account: file that adds up the privacy loss of all jobs; the site's own.
        allowed_tensors: regular expressions, found anywhere in a tensor's name; None = all that a job shares.
        allowed_metrics: names of scalars; None = all. ``n_samples`` counts as one, and so do ``clip_norm``,
            ``noise_multiplier``, ``epsilon`` and ``delta``, by which a report can tell of the site's protection.
        allowed_extras: names of a method's additional values; none unless listed.
        max_bytes: largest answer, tensors and extras together.
        clip_norm: an update is scaled down to this L2 norm over all its floating-point tensors.
        noise_multiplier: standard deviation of the noise in every coordinate, in units of ``clip_norm``.
        delta: the δ at which ε is stated, (0, 1).
        max_epsilon: an answer that would bring the account above it is not given.
        extras_noise: standard deviation of the noise in every value of an array among the extras; plain numbers, such
            as ``rsa``, get none.
        extras_min_images: fewest images of which statistics among the extras may be; a job can only ask for more. None
            = the method's own number, for FedMoCo twice that of the features.
        noise_seed: makes the noise repeatable and therefore worthless as protection; for experiments only.
    """

    account: Path
    allowed_tensors: tuple[str, ...] | None = None
    allowed_metrics: tuple[str, ...] | None = None
    allowed_extras: tuple[str, ...] = ()
    max_bytes: int | None = None
    clip_norm: float | None = None
    noise_multiplier: float | None = None
    delta: float = DELTA
    max_epsilon: float | None = None
    extras_noise: float | None = None
    extras_min_images: int | None = None
    noise_seed: int | None = None


KEYS = {f.name for f in fields(Privacy)}


def parse_privacy(values: Any, path: Path, account: Path) -> Privacy:
    """Check the ``privacy`` block of a site's YAML.

    Args:
        values: the block; None when there is none.
        path: the YAML, for messages; relative paths are relative to it.
        account: where the account is kept unless the block says so.

    Raises:
        SiteConfigError: an unknown key, a wrong value, or values that contradict each other; says path and key.
    """
    values = {} if values is None else values
    if not isinstance(values, Mapping):
        raise _wrong(path, f"key 'privacy' is {values!r}; it must hold 'key: value' lines")
    if unknown := sorted(str(key) for key in set(values) - KEYS):
        raise _wrong(path, f"unknown key 'privacy.{unknown[0]}'. Known: {', '.join(sorted(KEYS))}")
    given = {key: value for key, value in values.items() if value is not None}
    checked = {key: CHECKS[key](key, value, path) for key, value in given.items()}
    privacy = Privacy(**{"account": account, **checked})
    _check_together(privacy, path)
    return privacy


def _wrong(path: Path, what: str) -> SiteConfigError:
    return SiteConfigError(f"{path}: {what}. Example:\n{EXAMPLE}")


def _names(key: str, value: Any, path: Path) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise _wrong(path, f"key 'privacy.{key}' is {value!r}; it must be a list of words")
    return tuple(value)


def _patterns(key: str, value: Any, path: Path) -> tuple[str, ...]:
    for pattern in (names := _names(key, value, path)):
        try:
            re.compile(pattern)
        except re.error as error:
            raise _wrong(path, f"key 'privacy.{key}': {pattern!r} is not a regular expression ({error})") from error
    return names


def _number(key: str, value: Any, path: Path) -> float:
    below = 1.0 if key == "delta" else math.inf
    plain = isinstance(value, int | float) and not isinstance(value, bool)
    if not plain or not 0 < value < below:
        hint = " (YAML takes 1e-5 for a word; write 0.00001 or 1.0e-5)" if isinstance(value, str) else ""
        raise _wrong(path, f"key 'privacy.{key}' is {value!r}; it must be a number above 0, below {below:g}{hint}")
    return float(value)


def _whole(key: str, value: Any, path: Path) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise _wrong(path, f"key 'privacy.{key}' is {value!r}; it must be a whole number, 0 or more")
    return value


def _images(key: str, value: Any, path: Path) -> int:
    if _whole(key, value, path) < 2:
        raise _wrong(path, f"key 'privacy.{key}' is {value}; statistics need 2 images at least")
    return value


def _file(key: str, value: Any, path: Path) -> Path:
    if not isinstance(value, str) or not value:
        raise _wrong(path, f"key 'privacy.{key}' is {value!r}; it must be the path of a file")
    return (path.parent / Path(value).expanduser()).resolve()


CHECKS = {
    "account": _file,
    "allowed_tensors": _patterns,
    "allowed_metrics": _names,
    "allowed_extras": _names,
    "max_bytes": _whole,
    **dict.fromkeys(("clip_norm", "noise_multiplier", "delta", "max_epsilon", "extras_noise"), _number),
    "noise_seed": _whole,
    "extras_min_images": _images,
}


def _check_together(privacy: Privacy, path: Path) -> None:
    noise = privacy.noise_multiplier
    if noise is not None and privacy.clip_norm is None:
        raise _wrong(path, "'privacy.noise_multiplier' needs 'privacy.clip_norm': noise is measured by it")
    if noise is not None and privacy.allowed_metrics is None:
        raise _wrong(
            path,
            "'privacy.noise_multiplier' needs 'privacy.allowed_metrics': scalars carry no noise and are outside the "
            "account, so say which may leave ([] for none)",
        )
    for key in ("extras_noise", "extras_min_images"):
        if getattr(privacy, key) is not None and not privacy.allowed_extras:
            raise _wrong(path, f"'privacy.{key}' needs 'privacy.allowed_extras': without it no extras leave")
    if noise is None and privacy.max_epsilon is not None:
        raise _wrong(path, "'privacy.max_epsilon' needs 'privacy.noise_multiplier': without noise there is no account")
    if noise is None and privacy.extras_noise is None and privacy.noise_seed is not None:
        raise _wrong(path, "'privacy.noise_seed' needs 'privacy.noise_multiplier' or 'privacy.extras_noise'")
