"""Labelled sites that also train alone: the model that they would have without the others."""

import json
from dataclasses import replace

import pytest
import torch

from fedmed.federation import alone_training, client, opened_model
from fedmed.federation.loop import run_job
from fedmed.recovery.site_state import SiteState
from fedmed.settings.site import load_site
from tests.federation.run_folder import kept_of, records, result_of

SITES = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}


def alone_of(workspace, site, round=1):
    return kept_of(workspace, site, round)["alone"]


def test_each_labelled_site_trains_alone_and_says_what_the_others_bring(tiny_job, lively, tmp_path):
    run_job(tiny_job(sites=SITES, rounds=2, gain=True, overrides=lively), tmp_path / "ws")
    result = result_of(tmp_path / "ws")
    assert set(result["test_alone"]) == {"ct_north", "ct_south"}
    for site in ("ct_north", "ct_south"):
        test, alone = result["test"][site], result["test_alone"][site]
        assert alone["gain"] == pytest.approx(test["dice_mean"] - alone["dice_mean"], abs=1e-5)
        assert alone["gain_patients"] == test["n_cases"] == 3 and 0 <= alone["gain_better"] <= 3
    assert "alone" not in kept_of(tmp_path / "ws", "ct_east", 1)
