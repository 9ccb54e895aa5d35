"""A job may change plain values of listed settings and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmed.bundles.overrides import check_overrides
from fedmed.errors import OverrideError

ALLOWED = ["learning_rate", "patch_size", "amp", "mode"]


def test_plain_values_pass_unchanged():
    values = {"learning_rate": 1e-4, "patch_size": [160, 160, 32], "amp": True, "mode": "bilinear"}
    assert check_overrides(values, ALLOWED) == values


def test_unlisted_id_is_refused_and_named():
    with pytest.raises(OverrideError, match="'bundle_root'.*may not set"):
        check_overrides({"bundle_root": "x"}, ALLOWED)


@pytest.mark.parametrize("value", ["$__import__('os').system('id')", "@network", "%/etc/passwd", " $1", ["ok", "$1"]])
def test_values_that_run_or_read_are_refused(value):
    with pytest.raises(OverrideError, match="override 'mode'.*starts with one of"):
        check_overrides({"mode": value}, ALLOWED)


@pytest.mark.parametrize("value", [{"_target_": "os.system"}, [{"_target_": "x"}], {"a": 1}])
def test_mappings_are_refused(value):
    with pytest.raises(OverrideError, match="override 'mode'.*mapping"):
        check_overrides({"mode": value}, ALLOWED)


@pytest.mark.parametrize("value", ["/etc/passwd", "../other_site", "..", "C:\\data", "a/b"])
def test_paths_are_refused(value):
    with pytest.raises(OverrideError, match="override 'mode'.*path"):
        check_overrides({"mode": value}, ALLOWED)


@given(st.text(alphabet="$@% \t\nab_./", max_size=12))
def test_no_text_that_monai_would_evaluate_gets_through(text):
    try:
        check_overrides({"mode": text}, ALLOWED)
    except OverrideError:
        return
    assert not text.strip().startswith(("$", "@", "%"))
    assert "/" not in text and ".." not in text


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=3),
        lambda c: st.lists(c) | st.dictionaries(st.text(max_size=8), c),
        max_leaves=5,
    )
)
def test_no_mapping_gets_through(value):
    def has_mapping(v):
        return isinstance(v, dict) or (isinstance(v, list) and any(map(has_mapping, v)))

    if has_mapping(value):
        with pytest.raises(OverrideError):
            check_overrides({"mode": value}, ALLOWED)
