"""The mean of the last rounds' models."""

import torch

from fedmed.federation.selection import MeanOfRounds

COUNTER, TABLE = "norm.num_batches_tracked", "table"


def model(weight, variance=1.0, counter=0, table=7):
    return {
        "w": torch.tensor(weight),
        "norm.running_var": torch.tensor([variance], dtype=torch.float16),
        COUNTER: torch.tensor(counter),
        TABLE: torch.tensor([table]),
    }


def test_it_is_of_the_last_rounds_alone():
    newest = MeanOfRounds(3)
    for round, weight in enumerate([100.0, 1.0, 2.0, 6.0]):
        newest.add(round, model([weight, -weight], variance=weight, counter=10 - round, table=round))
    mean = newest.mean()
    assert sorted(newest.models) == [1, 2, 3]
    assert mean["w"].tolist() == [3.0, -3.0] and mean["norm.running_var"].tolist() == [3.0]
    assert mean["norm.running_var"].dtype == torch.float16
    assert mean[COUNTER] == 9 and mean[COUNTER].dtype == torch.int64, "the most that any has seen"
    assert mean[TABLE].tolist() == [3], "a table has no mean: the last one's"


def test_models_that_are_alike_give_any_one_of_them_bit_for_bit():
    torch.manual_seed(0)
    alike = {"w": torch.randn(1000) * 1e3, "half": torch.randn(1000).bfloat16()}
    newest = MeanOfRounds(3)
    for round in (4, 7, 9):  # those between failed
        newest.add(round, {name: tensor.clone() for name, tensor in alike.items()})
    assert all(torch.equal(newest.mean()[name], tensor) for name, tensor in alike.items())


def test_the_order_in_which_rounds_come_back_changes_no_bit():
    torch.manual_seed(0)
    models = {round: {"w": torch.randn(1000)} for round in range(4)}
    there, back = MeanOfRounds(4), MeanOfRounds(4)
    for round in models:
        there.add(round, models[round])
        back.add(3 - round, models[3 - round])
    assert torch.equal(there.mean()["w"], back.mean()["w"])


def test_nothing_is_kept_unless_it_is_wanted():
    newest = MeanOfRounds(0)
    newest.add(0, model([1.0]))
    assert newest.mean() is None and not newest.models


def test_labelled_sites_score_every_round_though_nothing_is_chosen_by_it(job_of):
    said = {"select": "mean", "validate_every": 2}
    study = job_of(name="x", sites={"a": "supervised"}, rounds=4, steps=1, **said).study
    assert [study.validates(round) for round in range(4)] == [True, False, True, False]
