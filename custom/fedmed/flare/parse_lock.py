"""One thread at a time in Python's parser of literals.

CPython counts the depth of an AST under construction in one place for all threads (python/cpython#106905). When a
thread loses its turn in the middle, which garbage collection brings about, the other's count is wrong and it fails
with ``SystemError: AST constructor recursion depth mismatch``. NumPy parses the header of every array with
``ast.literal_eval``, NVFlare decodes several sites' arrays at the same time, and ends the whole job on that error.
"""

import ast
import functools
import threading
from typing import Any

_TURN = threading.RLock()  # re-entrant: a finalizer that runs in the parser may parse too


def guard_parser() -> None:
    """Let threads wait for each other in ``ast.parse``, which ``ast.literal_eval`` uses; a second call does nothing."""
    original: Any = ast.parse
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def parse(*args: Any, **kwargs: Any) -> Any:
        with _TURN:
            return original(*args, **kwargs)

    setattr(ast, "parse", parse)  # noqa: B010 - mypy knows the overloads of the original
