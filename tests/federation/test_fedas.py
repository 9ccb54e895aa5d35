"""FedST and its rivals on a few numbers: what sites keep, and what they count by."""

import pytest
import torch

from fedmed.errors import JobError
from tests.federation.run_folder import kept_of, rounds_of

CLASSES = {"overrides": {"supervised": {"batch_size": 2, "learning_rate": 0.1, "momentum": 0.9}}}
FEDAS = {"method": {"path": "fedmed.systems.fedas.method.FedAS"}, "overlays": ["layers", "classes"], **CLASSES}
FEDLD = {"method": {"path": "fedmed.systems.fedld.method.FedLD"}, "overlays": ["layers", "classes"], **CLASSES}
FEDST = {**FEDLD, "method": {"path": "fedmed.systems.fedst.method.FedST", "args": {"group": "head", "server": "mean"}}}
ALL = pytest.mark.parametrize("spec", [FEDAS, FEDLD, FEDST], ids=["FedAS", "FedLD", "FedST"])


STILL = {"overrides": {"supervised": {**CLASSES["overrides"]["supervised"], "dropout": 0.0}}}
ROWS = {
    "x": [([0.5, -1.0, 2.0], [1.0]), ([1.5, 0.3, -0.7], [-1.0]), ([0.1, 0.2, 0.9], [0.5]), ([-1.0, 1.0, 0.4], [-0.2])],
    "y": [([0.4, 1.0, 1.0], [-1.0]), ([-0.5, 0.9, 0.7], [1.0]), ([1.1, -0.2, 0.3], [0.5]), ([0.2, 1.3, -0.4], [-0.7])],
}


def test_sites_count_by_their_traces_and_the_head_stays(small, answers, tmp_path):
    server = small("abc", rounds=2, **FEDAS)
    for line in rounds_of(tmp_path / "ws"):
        traces = {u.site: u.extras["fim_trace"] for _, u in answers if u.round == line["round"]}
        shares = {site: trace / sum(traces.values()) for site, trace in traces.items()}
        assert line["coefficients"] == pytest.approx(shares) and len(set(traces.values())) == 3
    for task, update in answers:
        assert task.tensors.keys() == update.tensors.keys() == {n for n in server.tensors if n.startswith("body.")}
    for site in "abc":
        kept = kept_of(tmp_path / "ws", site, 1)
        (old,) = [entry["state"]["old"] for entry in kept["engine"]["corrections"]]
        ((task, update),) = [(t, u) for t, u in answers if (u.site, u.round) == (site, 1)]
        assert kept["private"].keys() == {"head.weight", "head.bias"} and old.keys() == update.tensors.keys()
        for name in old:  # the difference that left was rounded, and adding it rounds again: float64, values about 1
            sent = task.tensors[name] + update.tensors[name]
            torch.testing.assert_close(old[name], sent, rtol=1e-12, atol=1e-12)
        assert update.tensors["body.1.weight"].abs().min() > 1e-3, "what was trained differs from what came by far more"
    assert all(torch.equal(server.tensors[n], server.store.initial[n]) for n in ("head.weight", "head.bias"))


def test_only_later_rounds_are_aligned(small, answers, same):
    """A rate of 0 aligns nothing: the first round's updates are the same, the second's are not."""
    still = {"supervised": {**CLASSES["overrides"]["supervised"], "alignment_rate": 0.0}}
    for overrides in (CLASSES["overrides"], still):
        small("ab", name=f"ws{len(answers)}", rounds=2, **{**FEDAS, "overrides": overrides})
    sent = [update.tensors for _, update in answers]
    assert same(sent[:2], sent[4:6]) and not same(sent[2:4], sent[6:])


@ALL
def test_sites_that_change_places_change_what_stays_with_them_alone(spec, small, tmp_path):
    result = {}
    for name, (a, b) in {"one": "xy", "other": "yx"}.items():
        server = small({"a": ROWS[a], "b": ROWS[b]}, name, **{**spec, **STILL})
        local = {rows: kept_of(tmp_path / name, site, 1)["private"] for site, rows in (("a", a), ("b", b))}
        result[name] = {"shared": dict(server.tensors), **local}
    for part, tensors in result["one"].items():
        assert all(torch.allclose(result["other"][part][key], tensors[key], atol=1e-12) for key in tensors)
    assert (spec is FEDLD) == (not result["one"]["x"])


def test_one_site_without_training_at_the_server_is_local_training(small, tmp_path):
    """Three rounds of four steps are twelve steps in one go."""
    import small as bundle  # the fixture has put it on the path

    server = small({"a": ROWS["x"]}, rounds=3, **{**FEDST, **STILL})
    network = bundle.Layers(0.0, 2)
    network.load_state_dict(server.store.initial)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    network.train()
    for batch in bundle.class_batches(ROWS["x"], 2) * 6:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(batch["image"]), batch["label"]).backward()
        optimizer.step()
    ends = {**server.tensors, **kept_of(tmp_path / "ws", "a", 2)["private"]}
    assert all(torch.allclose(ends[key], tensor, atol=1e-9) for key, tensor in network.state_dict().items())


def test_what_stays_is_said_once(small):
    for said in ({"sharing": "head"}, {"warm_start": {"rounds": 1, "sharing": "full"}}):
        with pytest.raises(JobError, match="what stays at the sites is said as 'method.args.group'; leave it out"):
            small("ab", **FEDAS, **said)
    with pytest.raises(JobError, match="both say what stays at the sites"):
        small("ab", **FEDAS, algorithm="fedbn")


@pytest.mark.parametrize("group", ["head", "full"])
def test_the_group_is_the_studys(group, small, answers):
    method = {"path": "fedmed.systems.fedst.method.FedDP", "args": {"group": group}}
    server = small("ab", method=method, overlays=["layers", "classes"])
    assert all(("head.bias" in update.tensors) == (group == "full") for _, update in answers)
    before, sent = answers[2][0].tensors, [update.tensors for _, update in answers[2:]]
    for name in (name for name in before if before[name].is_floating_point()):
        assert torch.allclose(server.tensors[name], before[name] + (sent[0][name] + sent[1][name]) / 2), "plain mean"
