"""Statistics that sites without labels keep, while those of labelled sites are the model's: ``buffers`` by role."""

import pytest
import torch

from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.reports.notes import remarks
from fedmed.reports.run import read_run
from tests.federation.run_folder import kept_of, result_of, rounds_of

KEPT = {"buffers": {"unsupervised": "local"}, "epochs": 1, "steps": None, "select": "last"}
STATISTIC = "features.bn1.running_mean"
OTHERS = ("lap_bay", "lap_cliff")


@pytest.fixture(scope="module")
def whole(write_tiny_phases_job, tmp_path_factory):
    """Server and workspace of a run of two rounds, the first of labelled sites alone. Do not write to it."""
    folder = tmp_path_factory.mktemp("whole")
    job = write_tiny_phases_job(folder, **KEPT, rounds=2, warm_start={"rounds": 1})
    return run_job(job, folder / "ws"), folder / "ws"


def test_every_site_is_scored_and_no_statistic_of_a_site_without_labels_leaves(whole):
    server, workspace = whole
    rounds, result = rounds_of(workspace), result_of(workspace)
    assert [len(line["accepted"]) for line in rounds] == [1, 3] and not rounds[1]["refused"]
    assert set(result["test"]) == {"lap_harbor", *OTHERS, "lap_isle"} and "untested" not in result
    sent = {site: server.policies.of(role, 1).sent(server.tensors) for site, role in server.study.sites.items()}
    assert STATISTIC in sent["lap_harbor"] and not any("running" in name for site in OTHERS for name in sent[site])
    of_site = {site: kept_of(workspace, site, 1)["private"][STATISTIC] for site in OTHERS}
    reported = "BatchNorm statistics: lap_bay and lap_cliff with those of their own images, the others with those that"
    assert any(note.startswith(reported) for note in remarks(read_run(workspace)))
    apart = [of_site["lap_bay"], of_site["lap_cliff"], server.tensors[STATISTIC]]
    assert all(not torch.allclose(a, b, atol=1e-4) for a, b in zip(apart, apart[1:] + apart[:1], strict=True))


def test_a_model_of_the_warm_start_is_scored_with_the_labelled_sites_statistics(write_tiny_phases_job, tmp_path):
    job = write_tiny_phases_job(tmp_path, **{**KEPT, "select": "best"}, rounds=1, warm_start={"rounds": 1})
    run_job(job, tmp_path / "ws")
    result = result_of(tmp_path / "ws")
    assert all(row["n_cases"] for row in result["test"].values()) and set(OTHERS) <= set(result["test"])


def test_a_site_that_learns_nothing_has_those_that_labelled_sites_shared_when_it_began(write_tiny_phases_job, tmp_path):
    still = {"learning_rate": 0.0, "statistics_momentum": 0.0, "clip_size": 8, "image_size": [24, 32]}
    overrides = {"unsupervised": still, "evaluate": {"image_size": [24, 32]}}
    overrides["supervised"] = {"image_size": [24, 32], "batch_size": 16}
    changes = {"rounds": 2, "warm_start": {"rounds": 1}, "overrides": overrides, "evaluate": False}
    server = run_job(write_tiny_phases_job(tmp_path, **{**KEPT, **changes}), tmp_path / "ws")
    first, second = (kept_of(tmp_path / "ws", site, 1)["private"][STATISTIC] for site in OTHERS)
    assert torch.equal(first, second) and first.abs().max() > 0, "not those of a network that nobody trained"
    assert not torch.equal(first, server.tensors[STATISTIC]), "the labelled site has trained for a round since"


def test_the_exported_model_has_the_labelled_sites_statistics_or_a_sites_own(whole, tmp_path):
    server, workspace = whole
    outcome = {}
    for name, site in (("all", None), ("bay", "lap_bay")):
        made = export_bundle(workspace, tmp_path / f"{name}_classification", site=site)
        outcome[name] = torch.load(made.out / "models/model.pt", weights_only=True)[STATISTIC]
        card = (made.out / "docs/README.md").read_text()
        assert "BatchNorm statistics: average (sites with labels) and local (sites without labels)" in card
    assert torch.equal(outcome["all"], server.tensors[STATISTIC]) and not torch.equal(outcome["bay"], outcome["all"])
