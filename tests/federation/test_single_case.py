"""The score of a single validation case is that case's result, and stays at its site."""

import json
from types import SimpleNamespace

import pytest

from fedmed.federation import client
from fedmed.federation.client import Client


@pytest.mark.parametrize(("cases", "least", "leaves"), [(1, 5, False), (2, 5, True), (1, 1, True)])
def test_a_score_of_one_case_stays_but_still_chooses_the_sites_own_best(tmp_path, monkeypatch, cases, least, leaves):
    datalist = tmp_path / "datalist.json"
    datalist.write_text(json.dumps({"validation": [{"image": f"{n}.nii.gz"} for n in range(cases)]}))
    monkeypatch.setattr(client, "validation_scores", lambda *_: {"val_dice": 0.5})
    offered = []
    site = SimpleNamespace(site="a", datalist=datalist, privacy=SimpleNamespace(min_cases=least))
    me = SimpleNamespace(
        site=site,
        bundle=SimpleNamespace(score=SimpleNamespace(validation="val_dice")),
        progress=SimpleNamespace(validated=lambda *_: None),
        best=SimpleNamespace(offer=lambda task, tensors, scores: offered.append(scores)),
        should_abort=None,
        _scoring=lambda task, model: None,
    )
    scored = Client._score(me, None, SimpleNamespace(parser=None, tensors={}))
    assert scored == ({"val_dice": 0.5} if leaves else {}) and offered == [{"val_dice": 0.5}]
