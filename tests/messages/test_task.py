"""A task as it arrives from the network."""

import pytest

from fedmed.errors import JobError
from fedmed.messages.task import Task

TASK = Task("train", 3, 10, {}, steps=40, bundle_digest="d", private_round=2, keep_rounds=[0, 2], earlier={"job": 3})


def test_a_task_survives_its_way():
    assert Task.from_config({**TASK.config(), "newer": "setting"}, {}) == TASK
    start = Task("evaluate", -1, 10, {})
    assert Task.from_config(start.config(), {}) == start


@pytest.mark.parametrize("value", ["2", "../../x", 2.0, True, -2, [2], {}])
@pytest.mark.parametrize("field", ["round", "private_round", "total_rounds", "steps", "keep_rounds"])
def test_a_number_that_is_none_is_refused_by_name(field, value):
    value = [value] if field == "keep_rounds" and value != [2] else ["2"] if field == "keep_rounds" else value
    with pytest.raises(JobError, match=f"'{field}' is"):
        Task.from_config({**TASK.config(), field: value}, {})


@pytest.mark.parametrize("field", ["name", "round", "total_rounds"])
def test_a_task_without_what_it_needs_is_refused(field):
    config = {key: value for key, value in TASK.config().items() if key != field}
    with pytest.raises(JobError, match=field):
        Task.from_config(config, {})
