import pytest
import yaml

from fedmed.errors import JobError
from research.runner.table_claim import read_claims
from research.tables.fedmoco import slows

CASES = "research.runner.case_claims.BetterByCases"
PATIENTS = "research.runner.patient_claims.BetterByPatients"
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
- id: slow
  text: Learning slows down
  path: research.tables.fedmoco.slows
  arms: [P]
  value: rsa
"""
ARMS, SITES = ["lr 5e-6", "lr 1e-4", "P", "N"], ["site_1", "site_2"]


def line(**changes):
    return {"better": "P", "worse": "N", "sites": ["site_1"], **changes}


def claim(**changes):
    return {"id": 1, "text": "P is above N", "holds": [line()], **changes}


def by_patients(**changes):
    holds = [{"better": "P", "worse": "N", "protocol": "linear", "fractions": [1], **changes}]
    return {"id": 1, "text": "t", "path": PATIENTS, "holds": holds}


def read(claims):
    return read_claims(claims, CASES, {"arm": ARMS, "site": SITES, "score": ["dice"]})


def test_claims_are_read():
    first, second, third = read(yaml.safe_load(YAML))
    assert first.holds[0].sites == SITES and (first.holds[0].list, first.holds[0].model) == ("test", "last")
    assert second.report and (second.holds[0].list, second.holds[0].model) == ("valid", "selected")
    assert isinstance(third, slows) and third.uses() == {"arm": ["P"]}
    assert read([]) == []


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        (["text"], "claim 1 of the list is 'text'"),
        ([{"id": 1, "text": "x"}], "claim 1: key 'holds' is missing"),
        ([claim(reprot=True)], "unknown key 'reprot'; did you mean 'report'"),
        ([claim(holds=[])], r"claim 1: key 'holds' is \[\]"),
        ([claim(holds=[line(worse="P")])], "'P' is compared with itself"),
        ([claim(holds=[line(list="testing")])], "'list' of entry 1 of 'holds' is 'testing'.*'test' or 'valid'"),
        ([claim(holds=[line(score="hd95")])], "claim 1: 'hd95' is not a score; there are: dice"),
        ([claim(), claim()], "claim 1 is there twice"),
        ([claim(holds=[line(better="LIDC")])], "claim 1: 'LIDC' is not an arm; there are: lr 5e-6"),
        ([claim(holds=[line(sites=["site_1", "site_4"])])], "claim 1: 'site_4' is not a site; there are: site_1"),
        ([by_patients(scores=["auroc"])], "claim 1: 'auroc' is not a score; there are: dice"),
        ([by_patients(fractions=[0])], "entry 1 of 'fractions' of entry 1 of 'holds' is 0"),
        ([{**claim(), "path": "research.tables.fedmoco.node_weight", "arms": ["P"], "node": 0}], "'node' is 0"),
        ([claim(path="research.runner.table_claim.Evidence")], "is not a kind of"),
    ],
)
def test_a_malformed_claim_is_named(claims, message):
    with pytest.raises(JobError, match=message):
        read(claims)
