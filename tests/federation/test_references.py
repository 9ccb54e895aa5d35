"""The mean of what labelled sites told of their images stays with the run, and goes into bundles that are exported."""

import json

import pytest
import torch

from fedmed.data.augment.intensities import INTENSITIES
from fedmed.export.bundle import export_bundle
from fedmed.federation.closing import Closing
from fedmed.federation.exchange import Exchange
from fedmed.federation.loop import run_job
from fedmed.jobs.plan import Plan
from fedmed.messages.answers import Extras

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}
METHOD = {"path": "fedmed.methods.agreement.Agreement"}


def test_the_mean_stays_with_a_run_that_was_resumed_and_goes_into_its_bundle(
    tiny_job, lively, allow_extras, monkeypatch, tmp_path
):
    allow_extras("agreed_share", "mean_scores", INTENSITIES)
    plan = {"rounds": 2, "steps": 1, "warm_start": {"rounds": 1}}
    job = tiny_job("tiny", sites=SITES, method=METHOD, overrides=lively, adaptation="intensity", **plan)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Closing, "validation_tasks", lambda self: (_ for _ in ()).throw(KeyboardInterrupt))
        run_job(job, tmp_path / "ws")
    run_job(job, tmp_path / "ws", None, True)
    kept = json.loads((tmp_path / "ws/server/simulate_job/fedmed/result.json").read_text())["references"]
    assert kept["sites"] == 2 and sum(kept[INTENSITIES]) == pytest.approx(1, abs=1e-3)
    made = export_bundle(tmp_path / "ws", tmp_path / "ct_segmentation").out
    federation = json.loads((made / "configs" / "metadata.json").read_text())["federation"]
    assert federation["references"] == kept and not any(site in json.dumps(federation) for site in SITES)


@pytest.mark.parametrize(("told", "kept"), [("abc", 3), ("ab", 0), ("a", 0)])
def test_it_is_kept_only_where_each_site_told(told, kept):
    names = {"names": [INTENSITIES], "rounds": [0], "given_to": ["unsupervised"]}
    exchange = Exchange(Plan(dict.fromkeys("abc", "supervised") | {"d": "unsupervised"}, 1, 1, exchange=names))
    assert exchange.once
    exchange.take({site: Extras(site, 0, {INTENSITIES: torch.ones(100) / 100}) for site in told}, 0, list("abc"))
    assert exchange.references.get("sites", 0) == kept
