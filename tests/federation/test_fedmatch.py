"""Weights in two parts through real client, engines and server: a run goes on after any round, helpers included."""

from fedmed.durable_files import load_tensors
from fedmed.federation.loop import run_job

SITES = {"lap_harbor": "supervised", "lap_bay": "unsupervised", "lap_cliff": "unsupervised"}


def test_it_goes_on_after_any_round_as_if_nothing_had_happened(
    write_tiny_phases_job, tiny_phases, allow_extras, same, killed_before, tmp_path
):
    """Helpers are chosen in the first and the third round: the task of the second brings them, and sites keep them."""
    allow_extras("noise_answer")
    frames = {**tiny_phases["supervised"], "learning_rate": 1e-3}
    overrides = {"supervised": frames, "unsupervised": {**frames, "confidence": 0.1, "distance_weight": 0.0}}
    method = {"path": "fedmed.systems.fixmatch.method.FedMatch", "args": {"every": 2}}
    spec = {"sites": SITES, "method": method, "overrides": overrides, "rounds": 3, "steps": 2}
    job = write_tiny_phases_job(tmp_path, evaluate=False, select="last", **spec)
    whole = outcome(run_job(job, tmp_path / "whole"), tmp_path / "whole")
    assert all(len(kept["engine"]["helpers"]) == 1 for kept in whole[1:])
    for round in (1, 2):
        with killed_before(round):
            run_job(job, tmp_path / f"killed{round}")
        server = run_job(job, tmp_path / f"killed{round}", resume=True)
        assert same(outcome(server, tmp_path / f"killed{round}"), whole), round


def outcome(server, workspace):
    """The model, and what each site without labels keeps."""
    paths = [next(workspace.glob(f"{site}/**/fedmed/state/round_2.pt")) for site in ("lap_bay", "lap_cliff")]
    return [dict(server.tensors), *({**load_tensors(path), "made_with": None} for path in paths)]
