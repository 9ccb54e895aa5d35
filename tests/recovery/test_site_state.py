"""A site loads exactly the round it is told, from the job that made it."""

import pytest
import torch

from fedmed.errors import JobError, StateError
from fedmed.recovery.site_state import BEST_MODEL, COPIES, SiteState, check_kept


def test_state_of_the_named_round_and_no_other(tmp_path):
    state = SiteState(tmp_path)
    for round in range(3):
        state.save(round, {"w": torch.tensor(float(round))})
    assert state.load(1)["private"]["w"] == 1.0
    assert state.load(None) == {}
    state.prune({1, 2})
    with pytest.raises(StateError, match="round 0"):
        state.load(0)


def test_damaged_state_is_named(tmp_path):
    state = SiteState(tmp_path)
    state.save(0, {})
    (tmp_path / "state" / "round_0.pt").write_bytes(b"damaged")
    with pytest.raises(StateError, match="round_0.pt is damaged"):
        state.load(0)


def job(workspace, id, **made_with):
    return SiteState(workspace / id / "fedmed", made_with)


def save(state, round, value):
    state.save(round, {"w": torch.tensor(float(value))})


def value(state, round):
    return state.load(round)["private"]["w"].item()


def test_a_resumed_run_finds_each_round_where_it_was_made_and_leaves_it_there(tmp_path):
    first, second, third = (job(tmp_path, id) for id in ("first", "second", "third"))
    for round in range(4):
        save(first, round, 10 + round)  # of which rounds 2 and 3 were never taken into the model
    second.earlier = {"first": 2}
    assert value(second, 1) == 11
    save(second, 2, 22)
    second.prune({1, 2})
    before = {path: path.read_bytes() for path in (tmp_path / "first").rglob("*.pt")}
    third.earlier = {"first": 2, "second": 4}
    assert value(third, 1) == 11 and value(third, 2) == 22
    with pytest.raises(StateError, match="round 3 cannot be read.*second/fedmed/state: put that folder back, or write"):
        third.load(3)  # the first job's is of another course of the run
    save(third, 1, 99)
    third.prune({2})
    assert {path: path.read_bytes() for path in (tmp_path / "first").rglob("*.pt")} == before
    assert value(second, 1) == 11


def test_a_copy_serves_where_the_job_that_made_it_is_gone(tmp_path):
    first, second, third = (job(tmp_path, id) for id in ("first", "second", "third"))
    save(first, 0, 5)
    second.earlier = {"first": 1}
    second.take_over(0)
    (tmp_path / "first/fedmed/state/round_0.pt").unlink()
    third.earlier = {"first": 1, "second": 1}
    assert value(third, 0) == 5


def test_a_file_system_without_links_gets_a_copy(tmp_path, monkeypatch):
    monkeypatch.setattr("os.link", lambda *a: (_ for _ in ()).throw(OSError("not supported")))
    first, second = job(tmp_path, "first"), job(tmp_path, "second")
    save(first, 0, 5)
    second.earlier = {"first": 1}
    assert value(second, 0) == 5


def test_a_state_made_with_other_settings_is_refused_by_name(tmp_path):
    first, second = job(tmp_path, "first", seed=0, sharing="full"), job(tmp_path, "second", seed=1, sharing="full")
    save(first, 0, 5)
    second.earlier = {"first": 1}
    with pytest.raises(StateError, match="'seed' 0, this job has 1"):
        second.load(0)


@pytest.mark.parametrize("round", ["0", "../../secret", -1, 1.0, True, [0]])
def test_nothing_but_a_whole_number_is_a_round(tmp_path, round):
    save(state := job(tmp_path, "first"), 0, 5)
    for use in (state.load, state.take_over, lambda r: state.prune([r])):
        with pytest.raises(JobError, match="is not a round of a run"):
            use(round)


@pytest.mark.parametrize(
    "earlier", [{"../first": 1}, {"/etc": 1}, {"..": 1}, {"a/b": 1}, {"": 1}, {"first": "1"}, ["a"]]
)
def test_no_path_arrives_as_the_name_of_a_job(tmp_path, earlier):
    state = job(tmp_path, "second")
    state.earlier = earlier
    with pytest.raises(JobError):
        state.load(0)


def test_the_best_model_is_kept_twice_and_its_copy_taken_where_it_is_damaged(tmp_path, caplog):
    state = SiteState(tmp_path)
    state.keep_best(3, 0.5, {"w": torch.arange(5000.0)})
    for name, remedy in (
        (BEST_MODEL, "copy own_best_copy.pt is taken"),
        (COPIES[BEST_MODEL], "own_best.pt is damaged"),
    ):
        path = tmp_path / "state" / name
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 255
        path.write_bytes(content)
        if name == BEST_MODEL:
            assert torch.equal(SiteState(tmp_path).best()["tensors"]["w"], torch.arange(5000.0))
            check_kept(tmp_path, [])
            assert remedy in caplog.text
    for look in (SiteState(tmp_path).best, lambda: check_kept(tmp_path, [])):
        with pytest.raises(StateError, match="is damaged"):
            look()
