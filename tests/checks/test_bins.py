from fedmed.checks.bins import in_bins, rounded, shown


def test_a_value_on_an_edge_belongs_above_it():
    bins = in_bins("x", [0.5, 1, 1.5, 2, 7], (1, 2))
    assert bins.rows == (("below 1", 1), ("1 to 2", 2), ("2 and more", 2))


def test_numbers_of_cases_are_rounded_so_that_none_can_be_told_from_the_rest():
    texts = {0: "0", 1: "under 5", 4: "under 5", 5: "about 5", 7: "about 5", 8: "about 10", 13: "about 15"}
    assert {n: shown(n) for n in texts} == texts
    assert [rounded(n) for n in (0, 3, 6)] == [0, 2.5, 5]
