"""Geometry of a round's updates, in every record and in TensorBoard, whatever the job (Markert 2022)."""

import pytest
import torch

from fedmed.federation.open_round import TaskMaker
from tests.federation.run_folder import rounds_of

SPECS = {
    "averaged": {},
    "AdamW at the server": {"server_step": "adamw"},  # before its step, of which the numbers know nothing
    "a private head": {"algorithm": "fedrep"},
    "private normalisation": {"algorithm": "fedbn"},
}
each = pytest.mark.parametrize("name", SPECS)


def parameters(update):
    """All that a site sent but BatchNorm's statistics, in one vector."""
    names = [name for name in sorted(update.tensors) if not name.split(".")[-1].startswith(("run", "num"))]
    return torch.cat([update.tensors[name].flatten() for name in names])


@each
def test_a_round_tells_it_of_each_site(name, small, answers, streamed, tmp_path):
    """Cosine to the weighted mean U (Eq. 4.19), squared distance to it (Eq. 4.20), norm, and the weight itself."""
    small("abc", min_clients=1, **SPECS[name])
    reported = []
    for record in rounds_of(tmp_path / "ws"):
        sent = {update.site: parameters(update) for _, update in answers if update.round == record["round"]}
        shares = record["coefficients"]
        assert shares.keys() == sent.keys() == set("abc") and sum(shares.values()) == pytest.approx(1)
        mean = sum(shares[site] * local for site, local in sent.items())
        for site, local in sent.items():
            expected = {
                "cosine": float(local @ mean / (local.norm() * mean.norm())),
                "distance": float((local - mean).square().sum()),
                "norm": float(local.norm()),
            }
            assert record["geometry"][site] == pytest.approx(expected, rel=1e-9), site
            reported += [(f"updates_{key}/{site}", record["geometry"][site][key], record["round"]) for key in expected]
    assert sorted(scalar for scalar in streamed if scalar[0].startswith("updates_")) == sorted(reported)


def test_a_site_without_a_step_is_not_compared(small, streamed, monkeypatch, tmp_path):
    made = TaskMaker.make

    def idle(self, kind, site, *rest, **more):
        task = made(self, kind, site, *rest, **more)
        task.steps = 0 if site == "b" else task.steps
        return task

    monkeypatch.setattr(TaskMaker, "make", idle)
    small("abc", min_clients=1, rounds=1)
    (record,) = rounds_of(tmp_path / "ws")
    assert record["geometry"].keys() == {"a", "c"} and all("cosine" in local for local in record["geometry"].values())
    assert {name.partition("/")[2] for name, *_ in streamed if name.startswith("updates_")} == {"a", "c"}
