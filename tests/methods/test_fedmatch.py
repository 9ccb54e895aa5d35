"""FedMatch: which part each role trains and sends, and what a site allows."""

import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.contract import Use, faults
from fedmed.errors import JobError
from fedmed.systems.fixmatch.method import FedMatch

BUNDLE = "surgical_phase_classification"


def test_published_values():
    """Jeong et al. 2021, with what Kassem et al. 2023 tuned: threshold, λ_1 and λ_2."""
    roles = FedMatch().roles()
    labelled, other = (Bundle(BUNDLE, roles[role].overlays).parser() for role in ("supervised", "unsupervised"))
    for parser in (labelled, other):
        assert (parser["psi_ratio"], parser["psi_threshold"]) == (0.2, 1e-5)
    assert (labelled["trained_part"], other["trained_part"], labelled["labelled_weight"]) == ("sigma", "psi", 10.0)
    weights = [other[f"{name}_weight"] for name in ("agree", "learn", "size", "distance")]
    assert weights == [1e-2, 1e-2, 1e-3, 10.0] and other["confidence"] == 0.75
    assert (other["operations"], other["magnitude"]) == (2, 10), "as the other rivals"
    assert (FedMatch().helpers, FedMatch().every) == (2, 10)


@pytest.mark.parametrize("role", ["supervised", "unsupervised", "evaluate"])
def test_its_overlays_define_what_a_federation_needs(role):
    assert faults(Bundle(BUNDLE, ["demo", *FedMatch().roles()[role].overlays]), Use(role)) == []


def test_all_count_the_same_in_the_mean_and_there_are_so_many_helpers():
    rule = FedMatch(helpers=1, every=3).rule()
    assert rule["path"].endswith("MeanWithHelpers") and (rule["args"]["helpers"], rule["args"]["every"]) == (1, 3)
    assert rule["args"]["mean"]["args"]["weighting"]["path"].endswith("UniformWeighting")
    for values in ({"helpers": 0}, {"every": "ten"}):
        with pytest.raises(JobError, match="give a whole number from 1 on"):
            FedMatch(**values)


def test_a_site_is_told_where_its_part_goes():
    (value,) = FedMatch().values()
    assert value.name == "noise_answer" and "two others" in value.direction and "two sites" in value.tells
    assert any("two other sites" in line for line in FedMatch().dry_run())
