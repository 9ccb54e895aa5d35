import pytest

from fedmed.experiments.scores import Score


@pytest.fixture
def runs():
    """Make scores of one arm at one site from a matrix of Dice, a row a seed, a column a case."""

    def make(arm, dice, site="site_1", list="test", model="last"):
        names = ["mean"] if list == "valid" else [f"case_{i:02}" for i in range(len(dice[0]))]
        return [
            Score(arm, seed, site, list, model, case, value)
            for seed, row in enumerate(dice)
            for case, value in zip(names, row, strict=True)
        ]

    return make
