"""Choice of the tensors that leave a site."""

import logging

import pytest
import torch

from fedmed.aggregation.sharing import Patterns, SharingPolicy, tensor_bytes
from fedmed.errors import SharingError

TENSORS = {
    "encoder.0.weight": torch.zeros(8, 4),
    "encoder.1.running_mean": torch.zeros(8),
    "encoder.1.running_var": torch.zeros(8),
    "encoder.1.num_batches_tracked": torch.tensor(0),
    "decoder.weight": torch.zeros(4, 8),
    "final.weight": torch.zeros(2, 4),
}
GROUPS = {"full": [], "final": [r"^final\."], "block_6": [r"^final\.", r"^decoder\."]}
BUFFERS = [name for name in TENSORS if name.startswith("encoder.1")]
NO_BUFFERS = [name for name in TENSORS if name not in BUFFERS]


def policy(group, names=TENSORS, **options):
    return SharingPolicy.from_groups(names, group, GROUPS, **options)


@pytest.mark.parametrize(
    ("group", "buffers", "private"),
    [
        ("full", "average", []),
        ("full", "pooled", []),
        ("full", "local", BUFFERS),
        ("final", "average", ["final.weight"]),
        ("final", "local", [*BUFFERS, "final.weight"]),
        ("block_6", "pooled", ["decoder.weight", "final.weight"]),
        ("block_6", "local", [*BUFFERS, "decoder.weight", "final.weight"]),
    ],
)
def test_a_group_and_local_buffers_stay_at_the_site(group, buffers, private):
    for names in (TENSORS, iter(list(TENSORS))):
        chosen = policy(group, names, buffers=buffers)
        assert chosen.private(TENSORS) == private
        assert chosen.received(TENSORS) == chosen.sent(TENSORS) == [name for name in TENSORS if name not in private]


def test_a_role_may_send_less_than_it_receives():
    chosen = policy("full", send_group="final")
    assert "final.weight" in chosen.received(TENSORS) and "final.weight" not in chosen.sent(TENSORS)
    assert chosen.private(TENSORS) == []


def test_a_role_may_not_send_what_it_does_not_receive():
    chosen = SharingPolicy(Patterns(exclude=["^final"]), Patterns())
    with pytest.raises(SharingError, match="'final.weight' is sent but not received"):
        chosen.check(TENSORS)


def test_exclude_wins_and_patterns_match_anywhere():
    assert Patterns(["weight$"], ["final"]).select(TENSORS) == ["encoder.0.weight", "decoder.weight"]
    assert Patterns(["coder"]).select(TENSORS)[-1] == "decoder.weight"


@pytest.mark.parametrize(
    ("group", "groups", "options", "message"),
    [
        ("block_7", GROUPS, {}, "group 'block_7' is unknown.*it has: full, final, block_6"),
        ("full", GROUPS, {"send_group": "block_7"}, "group 'block_7' is unknown"),
        ("head", {"head": ["^haed"]}, {}, r"group 'head': pattern '\^haed' matches no tensor.*groups: full, head"),
        ("head", {"head": ["("]}, {}, "'\\(' is not a regular expression"),
        ("none", {"none": []}, {}, "group 'none': no tensor is private"),
        ("all", {"all": [".*"]}, {}, "group 'all': none of the 6 tensors is received"),
        ("full", {"full": ["^final"]}, {}, "group 'full' shares everything, so it must be empty"),
        ("full", GROUPS, {"buffers": "fedbn"}, "'fedbn' is unknown; use one of average, pooled, local"),
        ("final", GROUPS, {"buffers": "local", "names": NO_BUFFERS}, "no BatchNorm statistics"),
    ],
)
def test_a_policy_that_cannot_be_meant(group, groups, options, message):
    with pytest.raises(SharingError, match=message):
        SharingPolicy.from_groups(**{"names": TENSORS, "group": group, "groups": groups, **options})


def test_sizes_are_logged(caplog):
    with caplog.at_level(logging.INFO, logger="fedmed.sharing"):
        policy("block_6")
    assert "group 'block_6'" in caplog.text and "sends 4 tensors, 0.0 MiB, keeps private 2 tensors" in caplog.text
    policy("final", names=list(TENSORS))  # names alone have no size


def test_bytes_follow_the_dtype():
    assert tensor_bytes(TENSORS) == 4 * (32 + 8 + 8 + 32 + 8) + 8
    assert tensor_bytes(TENSORS, ["final.weight"]) == 32
    assert tensor_bytes({"half": torch.zeros(3).half()}) == 6
