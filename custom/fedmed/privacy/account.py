"""What a site's noised answers have cost so far: (ε, δ), added up over all rounds and jobs in a file of the site's own.

The guarantee is **site-level**. Whoever sees everything that the site sends, the server above all, learns little about
*which data set the site has as a whole*: neighbouring are two data sets of the site that have nothing in common. A
clipped update can then move by twice the clip norm, so the noise counts with half its multiplier. It is local: the
server need not be trusted. It is not patient-level, and it covers tensors alone: scalars carry no noise.
"""

import json
import math
import warnings
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from filelock import FileLock, Timeout

from fedmed.durable_files import sealed, unsealed
from fedmed.errors import PrivacyError
from fedmed.files import write_atomically
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


def epsilon(spent: Spent, delta: float) -> float:
    """Return an upper bound of ε at ``delta`` for noised answers, by Opacus' Rényi accountant.

    Args:
        spent: noise multiplier as in the site's settings, and the number of answers, in any order.
        delta: (0, 1).
    """
    if not any(answers for _, answers in spent):
        return 0.0
    from opacus.accountants import RDPAccountant  # imports much, and only sites with noise need it

    accountant = RDPAccountant()
    # Every answer uses all of the site's data: a sample rate of 1, no amplification by sampling.
    accountant.history = [(noise / SENSITIVITY, 1.0, answers) for noise, answers in spent if answers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "optimal order is the smallest": then the bound is only loose
        return float(accountant.get_epsilon(delta, alphas=ORDERS))


class PrivacyAccount:
    """The account of one site.

    Args:
        privacy: the site's limits: file, noise, δ and the largest ε.
    """

    def __init__(self, privacy: Privacy) -> None:
        self.privacy, self.path = privacy, privacy.account

    def spent(self) -> list[tuple[float, int]]:
        """What was answered with noise so far; nothing when there is no file yet.

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
