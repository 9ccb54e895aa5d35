"""Work at which a process dies, in a file that loads little: each process that a test starts loads it."""

import os


def work(number: int) -> int | str:
    """Twice the number of a file; the process dies at 3, and 5 asks for more memory than there is."""
    if number == 3:
        os._exit(1)
    if number == 5:
        try:
            return len(b"1" * 2**34)
        except MemoryError:
            return "too large"
    return 2 * number
