"""Whether phases of a gallbladder's removal follow one another as the protocol of MultiChole2022 has them."""

import re
from itertools import groupby

from fedmed.data.operation_names import PHASES
from fedmed.data.video.label_table import TimedLabels

BEYOND = "gallbladder_extraction"  # in data sets of seven phases; the protocol has no place for it
# Retrograde: 0, 1, 2, 3; from the fundus 2 also after 3; then 4 and 5 in any order, 5 perhaps before and after 4.
# Any may be missing, since recordings are cut, so the beginning of every order is one, too.
ORDERS = re.compile("0?1?(2?3?|232)(45?|5(45?)?)?")


def odd_order(table: TimedLabels) -> str:
    """A sentence about the first phase that comes where the protocol (Kassem et al. 2023) does not have it.

    Returns:
        "" where all come in order, and where the table has no phases, or one that is not of the protocol: such is
        another operation, or another protocol.
    """
    if table.phases is None or not set(table.phase_names) <= {*PHASES, BEYOND}:
        return ""
    names = (table.phase_names[place] for place in table.phases)
    timed = [(PHASES.index(name), second) for name, second in zip(names, table.seconds, strict=True) if name != BEYOND]
    runs = [next(run) for _, run in groupby(timed, key=lambda one: one[0])]
    order = "".join(str(phase) for phase, _ in runs)
    for place, (phase, second) in enumerate(runs):
        if not ORDERS.fullmatch(order[: place + 1]):
            return (
                f"'{PHASES[phase]}' begins at {second:g} s, after '{PHASES[runs[place - 1][0]]}', which is in none of "
                "the protocol's orders; look whether it is labelled right"
            )
    return ""
