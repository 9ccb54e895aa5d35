"""A job may change plain values of listed settings and nothing else.

What passes is put into MONAI's own parser, next to a function that must not be called and a file that must not be read.
"""

import copy
import json
import sys
import types

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from monai.bundle import ConfigParser

from fedmed.bundles.bundle import MAX_ITEMS, MAX_TEXT, Bundle, check_overrides
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


@pytest.mark.parametrize("value", [{"_target_": "os.system"}, [{"_target_": "x"}], {"a": 1}, [1, [{"": None}]]])
def test_mappings_are_refused(value):
    with pytest.raises(OverrideError, match="override 'mode'.*mapping"):
        check_overrides({"mode": value}, ALLOWED)


@pytest.mark.parametrize("value", ["/etc/passwd", "../other_site", "..", "C:\\data", "a/b"])
def test_paths_are_refused(value):
    with pytest.raises(OverrideError, match="override 'mode'.*path"):
        check_overrides({"mode": value}, ALLOWED)


# What MONAI gives a meaning to, what looks like it, and what could be smuggled in between.
FRAGMENTS = [
    *("$", "@", "%", "#", "::", ":", "+", "_target_", "_requires_", "mode", "nested::mode", "canary", "x"),
    *("1e-4", "nan"),
    *("fedmed_canary.spring()", "__import__('fedmed_canary').spring()", "import fedmed_canary", "canary.yaml::secret"),
    *(" ", "\t", "\n", "\x00", "\xa0", "\u3000", "\u200b", "\ufeff", "\uff04", "\ufe69", "\uff20", "\uff05", "\ufe6a"),
    *("/", "\\", "..", "'", '"', "{", "}", "\ud800"),
]
TEXTS = st.lists(st.sampled_from(FRAGMENTS) | st.text(max_size=3), max_size=6).map("".join)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
KEYS = st.sampled_from(["_target_", "_requires_", "_disabled_", "a", "a::b", "#"]) | TEXTS
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=3))
CONFIG = {
    "imports": ["$import math"],
    "mode": "plain",
    "patch_size": [1, 2],
    "nested": {"mode": "plain", "list": [1, [2, 3]]},
    "canary": {"_target_": "fedmed_canary.spring"},
    "secret": "$fedmed_canary.spring()",
    "user": {"_target_": "fedmed_canary.Taken", "mode": "@mode", "again": "$[@mode]", "inside": {"deep": ["@mode"]}},
}


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    """Return a function: setting, value -> what MONAI makes of it, everywhere it is used; fails if the canary sings."""
    module, sung = types.ModuleType("fedmed_canary"), []
    module.spring = lambda *args, **kwargs: sung.append("called")
    module.Taken = lambda **values: values
    sys.modules["fedmed_canary"] = module
    (tmp_path_factory.mktemp("canary") / "canary.yaml").write_text("secret: stolen")
    read = ConfigParser.load_config_file

    def parse(value):
        parser = ConfigParser(copy.deepcopy(CONFIG), globals={"fedmed_canary": module})
        parser.update({"mode": value})
        taken = parser.get_parsed_content("user")
        result = [parser.get_parsed_content("mode"), taken["mode"], *taken["again"], *taken["inside"]["deep"]]
        assert not sung, sung.clear()
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.getbasetemp() / "canary0")
        patch.setattr(ConfigParser, "load_config_file", lambda path: sung.append("read") or read(path))
        yield parse
    del sys.modules["fedmed_canary"]


@pytest.mark.parametrize(
    "attack",
    [
        "$fedmed_canary.spring()",
        "$__import__('fedmed_canary').spring()",
        "@canary",
        "@secret",
        "%canary.yaml::secret",
        {"_target_": "fedmed_canary.spring"},
        [1, ["@canary"]],
        "%canary.yaml#secret",
    ],
)
def test_the_canary_sings_when_nothing_is_checked(canary, attack):
    with pytest.raises(AssertionError):
        canary(attack)
    with pytest.raises(OverrideError):
        check_overrides({"mode": attack}, ALLOWED)


@settings(max_examples=200, deadline=None)
@given(VALUES)
@example("a#b")  # `#` is an older spelling of `::`, which MONAI replaces in every text
@example("a@::b")  # a relative reference is replaced wherever it stands
@example("x%::::y")
@example("\ufeff$fedmed_canary.spring()")
@example([[[["deep"]]]])
def test_what_passes_is_to_monai_the_plain_value_that_was_given(canary, value):
    try:
        accepted = check_overrides({"mode": value}, ALLOWED)
    except OverrideError as error:
        assert "override 'mode'" in str(error)
        return
    assert repr(accepted["mode"]) == repr(value)
    assert {repr(result) for result in canary(accepted["mode"])} == {repr(value)}
    assert json.loads(json.dumps(accepted, allow_nan=False)) == {"mode": value}


@settings(max_examples=50, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
        | st.text("abcXYZ019 _-+,.", max_size=MAX_TEXT).filter(lambda text: ".." not in text),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=6,
    ).filter(lambda value: depth(value) <= 3)
)  # fmt: skip
def test_plain_values_do_pass(canary, value):
    accepted = check_overrides({"mode": value}, ALLOWED)
    assert {repr(result) for result in canary(accepted["mode"])} == {repr(value)}


def depth(value):
    return 1 + max(map(depth, value), default=0) if isinstance(value, list) else 0


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(["augmentation", "consistency_loss", "patch_size", "window_size", "threshold"]), VALUES)
def test_what_passes_is_plain_in_the_real_bundle_too(key, value):
    try:
        bundle = Bundle("covid_ct_segmentation", ["demo", "unlabelled", "consistency"], {key: value})
        parser = bundle.parser(device="cpu")
    except OverrideError:
        return
    assert repr(parser.get_parsed_content(key)) == repr(value)


@settings(max_examples=200, deadline=None)
@given(TEXTS | st.sampled_from(["mode::0", "mode#_target_", " mode", "mode ", "MODE", "m\u043ede", "", "bundle_root"]))
def test_only_listed_ids_pass_to_the_letter(key):
    if key not in ALLOWED:
        with pytest.raises(OverrideError, match="a job may not set this"):
            check_overrides({key: 1}, ALLOWED)


@pytest.mark.parametrize(
    "key", ["network_def::_target_", "loss#_target_", "_meta_", "a::_requires_::0", "", "_target_"]
)
def test_an_id_that_chooses_code_is_refused_even_if_a_bundle_lists_it(key):
    with pytest.raises(OverrideError, match="a job may not set this"):
        check_overrides({key: "x"}, [key])


def test_a_list_of_ids_that_is_a_text_is_a_mistake_in_the_bundle():
    """'rate' is part of the text 'learning_rate'."""
    with pytest.raises(OverrideError, match="'overridable' must be a list"):
        check_overrides({"rate": 1}, "learning_rate")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [1.0, -float("inf")], 10**400, -(2**53) - 1])
def test_numbers_that_no_setting_can_mean_are_refused(value):
    with pytest.raises(OverrideError, match="override 'learning_rate'.*is not a number that a setting"):
        check_overrides({"learning_rate": value}, ALLOWED)


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", ["x" * (MAX_TEXT + 1), "x" * 10**6, [0] * (MAX_ITEMS + 1), [[0] * MAX_ITEMS] * 2, nested(4), nested(10**5)]
)
def test_values_too_large_to_be_meant_are_refused_in_a_short_message(value):
    with pytest.raises(OverrideError, match="override 'mode'") as refused:
        check_overrides({"mode": value}, ALLOWED)
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize("value", ["\uff04x", "\u200b$x", "a#b", "a:b", "x\n", "\x00", "caf\u00e9", "\ud800"])
def test_text_beyond_plain_words_is_refused(value):
    with pytest.raises(OverrideError, match="override 'mode'"):
        check_overrides({"mode": value}, ALLOWED)


def test_the_copy_shares_no_list():
    given_ = {"patch_size": [[1], 2]}
    accepted = check_overrides(given_, ALLOWED)
    accepted["patch_size"][0].append(3)
    assert given_ == {"patch_size": [[1], 2]}
