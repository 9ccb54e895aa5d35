"""A study chooses the server's optimizer by one line, for every system."""

import pytest
import torch
import yaml

from fedmed.errors import JobError
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.jobs.example import example
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.jobs.rule_spec import MEAN, STEPS, load_rule, rule_spec
from fedmed.methods.find_method import installed
from tests.federation.run_folder import model_of, rounds_of

SITES = {"a": "supervised", "b": "unsupervised"}
STUDY = {"name": "x", "sites": SITES, "rounds": 3, "steps": 2}


def step_of(rule):
    return getattr(rule, "mean", rule).step


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("args", [{}, {"weighting": "samples"}, {"rule": "median"}])
def test_every_optimizer_by_its_name(name, args):
    rule = load_rule(rule_spec({"path": MEAN, "args": args}, step=name))
    assert step_of(rule).__class__.__name__.lower() == f"server{name}"


@pytest.mark.parametrize("method", [name for name in installed() if name != "fedld"])  # it makes no mean
def test_every_method_takes_one(method, job_of):
    """Also one whose rule is not the mean itself, but has a mean; a study of it begins with a comment about this."""
    values = yaml.safe_load(example(method))
    job = job_of(**values, server_step={"by": "adamw", "rate": 0.01, "decay": 0})
    step = step_of(load_rule(job.rule))
    assert (type(step).__name__, step.rate, step.decay) == ("ServerAdamW", 0.01, 0.0)
    assert "# server_step: null" in example(method) and "sgd, adam, adamw or yogi" in example(method)
    assert step_of(load_rule(job_of(**values).rule)) is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"server_step": {"by": "adamw", "rate": 0}},
            r"line \d+: 'rate' of the server's optimizer is 0; give a number",
        ),
        ({"server_step": {"by": "yogi", "beta1": 1}}, r"line \d+: 'beta1' .* is 1; give .* below 1"),
        ({"server_step": {"by": "adamw", "decay": -1}}, r"line \d+: 'decay' .* is -1"),
        ({"server_step": "adamx"}, r"line \d+: 'server_step' is 'adamx'; use sgd, adam, adamw, yogi, or name a class"),
        ({"server_step": ""}, "'server_step' is ''"),
        ({"server_step": {"rate": 1.0}}, "'server_step' is None; use"),
        ({"server_step": 3}, "'server_step' is 3 .*it must be a text"),
        ({"server_step": ["sgd"]}, "'server_step' is .'sgd'.; it must be a text"),
        ({"server_step": {"by": "adamw", "lr": 1}}, "the arguments of .*ServerAdamW are wrong: .*'lr'"),
        ({"server_step": {"by": "os.Path"}}, "a job may not name the class 'os.Path'"),
        (
            {"server_step": {"by": "fedmed.aggregation.tensor_means.BlockMean"}},
            "BlockMean is no ServerOptimizer",
        ),
        ({"server_step": "sgd", "rule": {"args": {"step": "sgd"}}}, "'server_step' and 'rule.args.step' both name"),
        (
            {"server_step": "sgd", "rule": {"path": "fedmed.systems.agreement.server.LabelledMean"}},
            rf"LabelledMean has no mean .* 'server_step' could act; leave it out, or give .* one: {{path: {MEAN}}}",
        ),
    ],
)
def test_one_clear_error_before_anything_trains(changes, message, job_of, tmp_path):
    with pytest.raises(JobError, match=message) as error:
        write_job(job_of(**STUDY, **changes), tmp_path / "x")
    assert "mistakes" not in str(error.value) and not list(tmp_path.iterdir())


def outcome(workspace):
    (line,) = rounds_of(workspace)
    return model_of(workspace), line


@pytest.mark.usefixtures("unscored")
@pytest.mark.parametrize("system", ["tools", "covid"])
def test_a_round_of_two_systems_with_adamw_at_the_server(system, write_tiny_tools_job, tiny_job, tmp_path, monkeypatch):
    """A first step moves each number by the rate, or not at all, beside the decay."""
    started = {}
    begin = Server._aggregate
    monkeypatch.setattr(Server, "_aggregate", lambda self, u: (started.update(self.tensors), begin(self, u))[1])
    write = (lambda **more: write_tiny_tools_job(tmp_path / "jobs", **more)) if system == "tools" else tiny_job
    job = write(steps=1, select="last", evaluate=False, server_step="adamw")
    assert read_job(job).rule["args"]["step"]["path"] == STEPS["adamw"]
    run_job(job, tmp_path / "ws")
    model, line = outcome(tmp_path / "ws")
    assert not line["refused"] and model.keys() == started.keys()
    moved = {name: (t - started[name] * (1 - 1e-5)).abs() for name, t in model.items() if name.endswith("weight")}
    assert moved and all(float(change.max()) <= 1e-3 * 1.001 for change in moved.values())
    largest = torch.stack([change.max() for change in moved.values()])
    assert float(largest.median()) == pytest.approx(1e-3, rel=0.02)
