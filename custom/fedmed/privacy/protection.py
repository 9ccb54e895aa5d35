"""Protection of a site's updates: clipping and noise, and the account of what they cost."""

import json
import logging
import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from fedmed.aggregation.acceptance import all_finite
from fedmed.durable_files import sealed, unsealed
from fedmed.errors import PrivacyError
from fedmed.files import write_atomically
from fedmed.messages.answers import map_tensors
from fedmed.optional import needs
from fedmed.privacy.allow_lists import Allowed
from fedmed.seeds import derive_seed
from fedmed.settings.privacy import Privacy

SENSITIVITY = 2.0  # of an update, in units of the clip norm, when any data set may replace the site's
# Opacus' own orders and, for strong and for weak noise, more: at its last or first order the bound would be loose.
ORDERS = [
    *(1 + x / 100 for x in range(1, 10)),
    *(1 + x / 10 for x in range(1, 110)),
    *range(12, 64),
    *(2 ** (6 + x / 4) for x in range(33)),
]
LOCK_SECONDS = 60
Spent = Sequence[tuple[float, int]]  # (noise multiplier, answers with it)
log = logging.getLogger("fedmed.site")
Facts = dict[str, Any]  # for the ledger
Source = Callable[[int], bytes]  # how many bytes -> so many random ones
_NORM_BLOCK = 16_384  # elements whose norm is taken at once, so that it does not depend on the number of threads
_BLOCK = 1 << 20  # coordinates at once: 16 MiB of bits and numbers


def epsilon(spent: Spent, delta: float) -> float:
    """Return an upper bound of ε at ``delta`` for noised answers, by Opacus' Rényi accountant.

    Args:
        spent: noise multiplier as in the site's settings, and the number of answers, in any order.
        delta: (0, 1).
    """
    if not any(answers for _, answers in spent):
        return 0.0
    with needs("privacy", "sites that add noise"):
        from opacus.accountants import RDPAccountant  # imports much, and only they need it

    accountant = RDPAccountant()
    # Every answer uses all of the site's data: a sample rate of 1, no amplification by sampling.
    accountant.history = [(noise / SENSITIVITY, 1.0, answers) for noise, answers in spent if answers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "optimal order is the smallest": then the bound is only loose
        return float(accountant.get_epsilon(delta, alphas=ORDERS))


class PrivacyAccount:
    """The account of one site."""

    def __init__(self, privacy: Privacy) -> None:
        self.privacy, self.path = privacy, privacy.account

    def spent(self) -> list[tuple[float, int]]:
        """Answers with noise so far; none when there is no file yet.

        Raises:
            PrivacyError: the file is damaged.
        """
        return [(entry["noise_multiplier"], entry["answers"]) for entry in self._entries()]

    def epsilon(self, answers: int = 0) -> float:
        """ε so far, and after further answers with the present noise."""
        return epsilon([*self.spent(), (self.privacy.noise_multiplier or 0.0, answers)], self.privacy.delta)

    def spend(self) -> float:
        """Book one answer, durably and before it is sent; return ε with it.

        Raises:
            PrivacyError: it would pass ``max_epsilon``, or the file is damaged, locked or cannot be written; nothing
                is booked, and nothing may be sent.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(f"{self.path}.lock", timeout=LOCK_SECONDS):  # two jobs may answer at the same time
                after, limit = self.epsilon(1), self.privacy.max_epsilon
                if limit is not None and after > limit:
                    raise PrivacyError(
                        f"this answer would bring the account to ε = {after:.4g}, above 'privacy.max_epsilon' "
                        f"{limit:g}; nothing is sent. The account is {self.path}"
                    )
                self._book()
        except Timeout as error:
            raise PrivacyError(f"{self.path}.lock is held by another process; nothing is sent") from error
        except OSError as error:
            raise PrivacyError(f"the account {self.path} cannot be written ({error}); nothing is sent") from error
        return after

    def _book(self) -> None:
        entries, noise = self._entries(), self.privacy.noise_multiplier
        now = datetime.now(UTC).isoformat(timespec="seconds")
        entry = next((e for e in entries if e["noise_multiplier"] == noise), None)
        if entry is None:
            entries.append(entry := {"noise_multiplier": noise, "answers": 0, "first": now})
        entry |= {"answers": entry["answers"] + 1, "last": now}
        text = json.dumps(sealed({"answers_with_noise": entries}), indent=2) + "\n"
        write_atomically(self.path, lambda stream: stream.write(text.encode()), durable=True)

    def _entries(self) -> list[dict[str, Any]]:
        try:
            content = unsealed(json.loads(self.path.read_text(encoding="utf-8")))
            entries: list[dict[str, Any]] = content["answers_with_noise"]
            if not all(_sound(entry) for entry in entries):
                raise ValueError("an entry is malformed")
        except FileNotFoundError:
            return []
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise PrivacyError(
                f"the account {self.path} is damaged ({error!r}); nothing is sent. Restore it from a backup: without "
                "it, what was spent would be forgotten"
            ) from error
        return entries


def _sound(entry: dict[str, Any]) -> bool:
    noise, answers = entry["noise_multiplier"], entry["answers"]
    return 0 < noise < math.inf and type(answers) is int and answers >= 0


class Protection:
    """Clips and adds noise."""

    def __init__(self, allowed: Allowed) -> None:
        self.allowed, self.site, self.privacy = allowed, allowed.site, allowed.privacy

    def clipped(self, tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], Facts]:
        """Return an update within the site's norm, and the norms before and after.

        Raises:
            PrivacyError: a value is not finite, so that there is no norm.
        """
        bound = self.privacy.clip_norm
        if bound is None:
            return dict(tensors), {}
        if bad := [name for name, tensor in tensors.items() if not all_finite(tensor)]:
            raise self.allowed.refusal(f"tensor '{bad[0]}' has values that are NaN or infinite", "clip_norm")
        norm = l2_norm(tensors)
        return scale_down(tensors, norm, bound), {"norm": norm, "norm_clipped": min(norm, bound)}

    def noised(self, tensors: Mapping[str, Tensor], round: int, std: float) -> tuple[dict[str, Tensor], Facts]:
        """Return a clipped update with noise of this standard deviation in every coordinate."""
        source = self._source(round, "noise")
        facts = {"noise_std": std} | ({"noise_seed": True} if self.privacy.noise_seed is not None else {})
        return {name: add_noise(tensor, std, source) for name, tensor in tensors.items()}, facts

    def noised_extras(self, extras: Mapping[str, Any], round: int) -> tuple[dict[str, Any], Facts]:
        """Return values beside the model with noise in their arrays; plain numbers get none.

        Raises:
            PrivacyError: numbers that would get no noise though they may be many, in lists, mappings or whole-number
                arrays.
        """
        std = self.privacy.extras_noise
        if std is None or not extras:
            return dict(extras), {}
        source = self._source(round, "extras noise")
        for name, value in extras.items():
            if _bare(value):
                raise self.allowed.refusal(f"'{name}' holds numbers outside of an array, without noise", "extras_noise")

        def noised(tensor: Tensor) -> Tensor:
            if not tensor.is_floating_point():
                raise self.allowed.refusal(f"an array of {tensor.dtype} cannot carry noise", "extras_noise")
            return add_noise(tensor, std, source)

        return map_tensors(extras, noised), {"extras_noise": std}

    def _source(self, round: int, purpose: str) -> Source:
        seed, site = self.privacy.noise_seed, self.site
        if seed is None:
            return system_source()
        log.warning(
            "%s: 'privacy.noise_seed' is set in %s: whoever knows it can subtract the noise. It protects NOTHING and "
            "is for experiments only",
            site.site,
            site.source,
        )
        return seeded_source(derive_seed(seed, site.site, round, purpose))


def _bare(value: Any, inside: bool = False) -> bool:
    """Tell whether there are numbers that get no noise though they may be many."""
    if isinstance(value, Mapping | list | tuple):
        return any(_bare(item, True) for item in (value.values() if isinstance(value, Mapping) else value))
    return inside and type(value) in (int, float)


def l2_norm(tensors: Mapping[str, Tensor]) -> float:
    """Return the L2 norm over all elements of all floating-point tensors, in float64."""
    chosen = (tensor.detach().reshape(-1) for _, tensor in sorted(tensors.items()) if tensor.is_floating_point())
    blocks = (block for tensor in chosen for block in tensor.split(_NORM_BLOCK))
    return math.hypot(*(float(torch.linalg.vector_norm(block, dtype=torch.float64)) for block in blocks))


def scale_down(tensors: Mapping[str, Tensor], norm: float, bound: float) -> dict[str, Tensor]:
    """Bring an update of L2 norm ``norm`` within ``bound``: one factor for all floating-point tensors.

    Its direction stays, integer counters too, and an update within the bound is not touched.
    """
    if norm <= bound:
        return dict(tensors)
    factor = bound / norm
    return {name: tensor * factor if tensor.is_floating_point() else tensor for name, tensor in tensors.items()}


def system_source() -> Source:
    """The operating system's cryptographic generator.

    ``torch.Generator`` would not do: on the CPU it takes 32 bits of its seed, so that whoever knows a few coordinates
    of an update could try all seeds and subtract the noise from the others.
    """
    return os.urandom


def seeded_source(seed: int) -> Source:
    """Bytes that the seed determines: for tests and repeatable experiments, no protection."""
    return np.random.Generator(np.random.Philox(seed)).bytes


def add_noise(tensor: Tensor, std: float, source: Source) -> Tensor:
    """Return ``tensor`` plus independent Gaussian noise, in its dtype and shape.

    Sum and noise are float64 and rounded once, to the tensor's dtype: the last bits of a float64 sum can tell which
    numbers a generator is able to produce (Mironov 2012), those of a rounded float32 do not.

    Args:
        tensor: floating point, on the CPU.
        std: standard deviation, 0 or more.
        source: where random bits come from, 8 bytes a coordinate.
    """
    flat = tensor.detach().reshape(-1)
    noised = torch.empty_like(flat)
    for start in range(0, flat.numel(), _BLOCK):
        block = flat[start : start + _BLOCK]
        noised[start : start + _BLOCK] = block.double() + std * gaussian(block.numel(), source)
    return noised.reshape(tensor.shape)


def gaussian(n: int, source: Source) -> Tensor:
    """Return ``n`` independent standard normal numbers, float64, at most 8.2 from 0."""
    bits = np.frombuffer(source(8 * n), dtype="<u8") >> np.uint64(12)
    uniform = (bits.astype(np.float64) + 0.5) * 2.0**-52  # exact; in (0, 1), symmetric about 1/2
    numbers: Tensor = torch.special.ndtri(torch.from_numpy(uniform))
    return numbers
