"""Size and digest of an answer, and what may be in one."""

import numpy as np
import pytest
import torch

from fedmed.errors import PrivacyError
from fedmed.privacy.payload import describe, payload_bytes, payload_digest


def test_size_is_that_of_the_elements(tmp_path):
    tensors = {"a": torch.zeros(3, 4), "b": torch.zeros((), dtype=torch.int64), "c": torch.zeros(2).half()}
    assert payload_bytes({"tensors": tensors}) == 48 + 8 + 4
    assert payload_bytes({"y": [True, None, "ab"]}) == 4 + 4 + 4
    assert describe(tensors) == {"a": "float32 3×4", "b": "int64 single value", "c": "float16 2"}


def test_the_digest_sees_every_change_and_nothing_else():
    tensor = torch.arange(6.0)
    digest = payload_digest({"w": tensor})
    assert digest == payload_digest({"w": tensor.clone()}) == payload_digest({"w": torch.arange(12.0)[:6]})
    changed = [
        {"v": tensor},
        {"w": tensor.reshape(2, 3)},
        {"w": tensor.view(torch.int32)},
        {"w": tensor + torch.eye(6)[3] * 1e-6},
        {"w": tensor, "n": 1},
    ]
    assert len({digest, *(payload_digest(content) for content in changed)}) == 6


@pytest.mark.parametrize("value", [object(), b"bytes", float("nan"), np.zeros(2), {1: 2}, {3}])
def test_only_plain_values_and_tensors_can_be_measured(value):
    for ask in (payload_bytes, payload_digest):
        with pytest.raises(PrivacyError, match="/x"):
            ask({"x": value})


def test_the_digest_of_an_answer_stays_what_it_was():
    """Ledgers written years apart can be compared."""
    tensors = {"w": torch.arange(6.0).reshape(2, 3), "h": torch.arange(4).half(), "n": torch.tensor(7)}
    extras = {"mu": torch.arange(3.0), "on": [True, None, "ab"]}
    content = {"tensors": tensors, "n_steps": 5, "metrics": {"train_loss": 0.25}, "extras": extras}
    assert payload_bytes(content) == 69
    assert payload_digest(content) == "7766e2270e6e179e260d5aa9ffaab851ef34edb3fc5e623712e1006fdad263b0"


def test_a_size_is_known_without_looking_at_an_element():
    tensors = {"w": torch.empty(1000, 10**6, device="meta"), "n": torch.empty((), dtype=torch.int64, device="meta")}
    assert payload_bytes(tensors) == 4 * 10**9 + 8
