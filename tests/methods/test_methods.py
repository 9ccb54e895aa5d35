"""Every method says what it does, and what it says fits together."""

import importlib
import json
import sys

import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.errors import JobError
from fedmed.jobs.job_folder import read_job
from fedmed.jobs.rule_spec import load_rule, rule_spec
from fedmed.methods.declarations import BEFORE_TRAINING, WITH_UPDATE, Exchanged
from fedmed.methods.find_method import find, installed, load_method, method_of_run
from fedmed.methods.method import MEAN, Method
from fedmed.methods.supervised_fedavg import SupervisedFedAvg
from fedmed.systems.covid_fssl.method import Consistency
from fedmed.systems.fedmoco.method import FedAvgMoCo, FedMoCo, Linear
from tests.shipped import JOBS, shipped

METHODS = list(installed().values())
EXECUTORS = (JOBS.parent / "custom/fedmed/flare/executors.py").read_text()  # imports nvflare
HERE = "custom_method.CustomMethod"
CUSTOM = """\
from dataclasses import dataclass
from fedmed.methods.method import Method
IMPORTED = True
@dataclass(frozen=True)
class CustomMethod(Method):
    strength: float = 1.0
"""


def test_the_methods_that_there_are():
    known = "agreement consistency fedas fedavg_moco fedcy feddp fedfixmatch fedld fedmatch fedmoco fedrgd fedst fedtcc"
    more = "feduda fine_tuning from_features linear supervised_fedavg tecno"
    assert list(installed()) == [*known.split(), *more.split()]


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_a_method_declares_what_others_ask_for(kind):
    method = kind()
    assert method.title and method.source and method.card()
    for role, made in method.roles().items():
        assert role in ("supervised", "unsupervised", "evaluate") and made.does and made.needs and made.lists
        module, _, name = made.executor.rpartition(".")
        assert module == "fedmed.flare.executors" and f"class {name}(" in EXECUTORS
    for value in method.values():
        assert value.task in (WITH_UPDATE, BEFORE_TRAINING) and value.shape and value.direction
        assert len(value.tells.split()) > 3 and value.tells.endswith(".")
    assert all(scalar.name.startswith("train_") and scalar.label for scalar in method.scalars())
    rule = load_rule(method.rule() if method.rule()["path"] != MEAN else rule_spec(method.rule()))
    reported = getattr(getattr(rule, "weighting", None), "name", None)
    assert reported is None or reported in method.with_update(needed=True)
    for path in method.report_sections():
        module, _, name = path.rpartition(".")
        assert isinstance(getattr(importlib.import_module(module), name), type)
    for name, guard in method.guards().items():
        assert name and set(guard.needs) <= {scalar.name for scalar in method.scalars()}


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_the_bundle_of_its_example_has_what_its_roles_need(kind):
    for made in kind().roles().values():
        Bundle(kind.example["bundle"], made.overlays)


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.__name__)
def test_a_method_comes_back_from_what_names_it(kind):
    assert load_method(json.loads(json.dumps(kind().spec()))) == kind()
    assert find(kind.name) == kind().spec()["path"] == find(kind().spec()["path"])


def test_arguments_reach_the_method_and_others_are_refused():
    spec = {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"form": "softmax", "exchange_from": None}}
    method = load_method(spec)
    assert method == FedMoCo(form="softmax", exchange_from=None) and not method.exchange().names
    for args, message in [
        ({"frm": "gap"}, "has no argument 'frm'; did you mean 'form'"),
        ({"exchange_from": -1}, "'exchange_from' is -1"),
        ({"exchange_from": True}, "'exchange_from' is True"),
        ({"adaptive": "no"}, "'adaptive' is 'no'"),
        (["gap"], r"arguments of method .* are \['gap'\]|dictionary"),
    ]:
        with pytest.raises((JobError, ValueError), match=message):
            load_method({**spec, "args": args})
    for wrong in (None, "x", {}, {"path": "fedmed.systems.fedmoco.method.Linear", "arg": {}}):
        with pytest.raises(JobError, match="'method' is .*; it needs 'path'"):
            load_method(wrong)


def test_fedmoco_is_moco_with_its_two_additions():
    ours, plain = FedMoCo(), FedAvgMoCo()
    assert ours.exchange() == Exchanged(("mu", "sigma", "n"), 50) and plain.exchange() == Exchanged()
    assert ours.with_update() == plain.with_update() == ["rsa"]
    assert ours.with_update(needed=True) == ["rsa"] and plain.with_update(needed=True) == []
    assert ours.roles() == plain.roles()
    assert FedMoCo(exchange_from=None, adaptive=False).rule() == plain.rule()


def test_an_exchange_after_the_last_round_is_refused():
    def problems(method, rounds):
        return [text for key, text in method.contradictions({"rounds": rounds}) if key == "method"]

    assert not problems(FedMoCo(exchange_from=19), 20) and not problems(FedMoCo(exchange_from=None), 1)
    assert "'method.args.exchange_from' is 20" in problems(FedMoCo(exchange_from=20), 20)[0]


def test_roles_that_fit_and_roles_that_do_not():
    assert Consistency().validation_errors({"a": "supervised", "b": "unsupervised", "c": "evaluate"}) == []
    assert Linear().validation_errors({"a": "supervised"}) == []
    role, number = SupervisedFedAvg().validation_errors({"b": "unsupervised"})
    assert "site 'b' has the role 'unsupervised'" in role and "at least 1 site" in number


@pytest.fixture
def custom(tmp_path, monkeypatch):
    """A class outside FedMed."""
    (tmp_path / "custom_method.py").write_text(CUSTOM)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield
    sys.modules.pop("custom_method", None)


def test_a_class_outside_the_room_is_refused_before_it_is_imported_and_taken_where_it_is_listed(custom):
    with pytest.raises(JobError, match="may not name the class.*'allowed_classes'"):
        load_method({"path": HERE})
    assert "custom_method" not in sys.modules
    assert load_method({"path": HERE, "args": {"strength": 2.0}}, [HERE]).strength == 2.0
    with pytest.raises(JobError, match="may not name the class"):
        load_method({"path": "custom_method.Other"}, [HERE])


def test_a_runs_method_comes_from_its_record_and_a_jobs_from_its_folder():
    job = read_job(shipped("cxr_fedmoco"))
    assert method_of_run({"config": {"study": job.recorded}}) == job.method == FedMoCo(exchange_from=6)
    earlier = {"rounds": 3, "method": job.method.spec()}  # as FedMed 0.1 wrote it
    assert method_of_run({"config": {"controller": earlier}}) == job.method
    unknown = method_of_run({"config": {"study": {"rounds": 3}}})
    assert type(unknown) is Method and not unknown.values() and not unknown.guards() and not unknown.exchange().names
