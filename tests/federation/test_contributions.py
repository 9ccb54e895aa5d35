"""Contributions to a model: a run to which no labelled site contributed is no success, and nothing says it was."""

from dataclasses import replace

import pytest
import torch

from fedmed.errors import RoundFailed
from fedmed.export.bundle import export_bundle
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.messages.answers import Update
from fedmed.reports.notes import contribution_note
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page
from fedmed.reports.run_report import report_of
from tests.federation.run_folder import records, result_of

pytestmark = pytest.mark.usefixtures("no_charts")

TWO = {"ct_north": "supervised", "ct_east": "unsupervised"}
THREE = {"ct_north": "supervised", "ct_south": "supervised", "ct_east": "unsupervised"}


def nan_of(*rounds, site="ct_north"):
    """Answers of sites of which one sends NaN in some rounds."""

    def answer(client, task):
        outcome = Client.answer(client, task)
        if client.site.site != site or not isinstance(outcome, Update) or task.round not in rounds:
            return outcome
        return replace(outcome, tensors={n: torch.full_like(t, torch.nan) for n, t in outcome.tensors.items()})

    return answer


def test_a_run_to_which_no_labelled_site_contributed_fails_and_its_report_says_so(tiny_job, unscored, tmp_path):
    job = tiny_job(sites=TWO, rounds=2, min_clients=1)
    with pytest.raises(RoundFailed, match=r"no update of a site with labels \(ct_north\).*NaN"):
        run_job(job, tmp_path / "ws", answer=nan_of(0, 1))
    assert not (records(tmp_path / "ws") / "result.json").exists()
    run = read_run(tmp_path / "ws")
    assert run.unlabelled and [site.name for site in run.idle] == ["ct_north"]
    html = page(run)
    assert "No site with labels contributed to this model." in html and "labelled, not used" in html
    assert "ct_north to none of 2 rounds and ct_east to 2 of 2 rounds" in html


def test_a_labelled_site_that_counts_in_one_round_is_enough(tiny_job, unscored, tmp_path):
    run_job(tiny_job(sites=TWO, rounds=2, min_clients=1), tmp_path / "ws", answer=nan_of(0))
    result = result_of(tmp_path / "ws")
    assert result["contributed"] == {"ct_east": 2, "ct_north": 1}
    run = read_run(tmp_path / "ws")
    assert not run.unlabelled and not run.idle and "ct_north to 1 of 2 rounds" in contribution_note(run)


def test_what_is_said_of_a_labelled_site_that_contributed_nothing(tiny_job, unscored, tmp_path):
    """In the report and in the card of the exported model, whose story counts the others alone."""
    job = tiny_job(sites=THREE, rounds=1, min_clients=2)
    run_job(job, tmp_path / "ws", answer=nan_of(0))
    run = read_run(tmp_path / "ws")
    assert "with 3 sites, of which ct_north contributed nothing" in report_of(run).summary(run)
    card = (export_bundle(tmp_path / "ws", tmp_path / "covid_ct_segmentation").out / "docs/README.md").read_text()
    assert card.count("| none: no update of this site with masks counted |") == 1
    assert card.count("| trained with masks |") == 1
    assert "Federated training of 1 site with masks (3 training cases) and 1 site without" in card
    assert "entered the model." in card and "It learnt from no" not in card


def test_a_run_resumed_after_its_only_labelled_contribution_ends_well(tiny_job, unscored, tmp_path, killed_before):
    """The contribution that counts was before the interruption."""
    job = tiny_job(sites=TWO, rounds=3, min_clients=1)
    with killed_before(1):
        run_job(job, tmp_path / "ws2")
    server = run_job(job, tmp_path / "ws2", resume=True, answer=nan_of(1, 2))
    assert server.counted == {"ct_east": 3, "ct_north": 1}
