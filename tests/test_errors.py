"""Which of the errors in a chain is told."""

import pytest

from fedmed.errors import unwrapped


class OwnError(RuntimeError):
    """Of another type than MONAI's wrapping."""


@pytest.mark.parametrize("local", [ValueError("clear"), OwnError("clear")])
def test_wrapping_is_taken_off_down_to_the_first_own_error(local):
    local.__cause__ = RuntimeError("the library's text")
    inner, outer = RuntimeError("applying transform"), RuntimeError("failed to instantiate")
    inner.__cause__, outer.__cause__ = local, inner
    assert unwrapped(outer) is local and unwrapped(local) is local


def test_a_runtime_error_without_a_cause_speaks_for_itself():
    outer, inner = RuntimeError("failed to instantiate"), RuntimeError("sizes differ")
    outer.__cause__ = inner
    assert unwrapped(outer) is inner
