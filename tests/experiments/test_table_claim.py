import pytest
import yaml

from fedmed.errors import JobError
from fedmed.experiments.claims import Claim, Pair, check_claims, parse_claims

YAML = """
- id: 4
  text: A learning rate near the supervised one lowers Dice at both sites
  holds:
  - {better: lr 5e-6, worse: lr 1e-4, sites: [site_1, site_2]}
- id: 9
  text: Controls
  report: true
  holds:
  - {better: P, worse: N, sites: [site_1], list: valid, model: selected}
"""
ARMS, SITES = ["lr 5e-6", "lr 1e-4", "P", "N"], ["site_1", "site_2"]


def line(**changes):
    return {"better": "P", "worse": "N", "sites": ["site_1"], **changes}


def claim(**changes):
    return {"id": 1, "text": "P is above N", "holds": [line()], **changes}


def test_claims_are_read():
    first, second = check_claims(yaml.safe_load(YAML), ARMS, SITES)
    assert first.pairs == (Pair("lr 5e-6", "lr 1e-4", "site_1"), Pair("lr 5e-6", "lr 1e-4", "site_2"))
    assert second == Claim("9", "Controls", (Pair("P", "N", "site_1", "valid", "selected"),), report=True)


def test_no_claims():
    assert parse_claims([]) == []


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ({"id": 1}, "claims are dict"),
        (["text"], "claim 1 of the list is 'text'"),
        ([{"id": 1, "text": "x"}], "claim 1 of the list has no 'holds'"),
        ([claim(reprot=True)], "unknown key 'reprot'"),
        ([claim(report="yes")], "claim 1: report is 'yes'"),
        ([claim(holds=[])], r"claim 1: holds is \[\]"),
        ([claim(holds=[{"better": "P"}])], "claim 1, a line of holds has no 'sites'"),
        ([claim(holds=[line(sites="site_1")])], "claim 1: sites is 'site_1'"),
        ([claim(holds=[line(worse="P")])], "claim 1: 'P' is compared with itself"),
        ([claim(holds=[line(list="testing")])], "claim 1: list is 'testing'; use test or valid"),
        ([claim(holds=[line(model="best")])], "claim 1: model is 'best'; use selected or last"),
        ([claim(), claim()], "claim 1 is there twice"),
        ([claim(holds=[line(better="LIDC")])], "claim 1: 'LIDC' is no arm; there are: lr 5e-6"),
        ([claim(holds=[line(sites=["site_1", "site_4"])])], "claim 1: 'site_4' is no site; there are: site_1"),
    ],
)
def test_a_malformed_claim_is_named(claims, message):
    with pytest.raises(JobError, match=message):
        check_claims(claims, ARMS, SITES)
