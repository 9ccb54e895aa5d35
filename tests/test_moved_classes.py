"""Class paths of an earlier FedMed, wherever they are still written, are one error that names the new one."""

import importlib.util

import pytest

from fedmed.bundles.bundle_parser import BundleParser
from fedmed.errors import BundleError, JobError, SiteConfigError, StateError
from fedmed.federation.open_round import TransactionalAggregator
from fedmed.jobs.job import Job
from fedmed.moved_classes import NOW_IN, ROOMS, hint, new_path
from fedmed.settings.site import load_file
from fedmed.systems.agreement.server import LabelledMean
from fedmed.training.corrected_steps import Corrections

OLD, NEW = "fedmed.methods.feduda.FedUDA", "fedmed.systems.fixmatch.method.FedUDA"
SENTENCE = f"'{OLD}' of an earlier FedMed is '{NEW}' now; write that"
STUDY = (
    "name: x\nbundle: surgical_phase_classification\nmethod: {path: %s}\nsites: {a: supervised}\nrounds: 1\nsteps: 1\n"
)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (OLD, NEW),
        ("fedmed.aggregation.labelled_mean.LabelledMean", "fedmed.systems.agreement.server.LabelledMean"),
        ("fedmed.engines.supervised.SupervisedEngine", "fedmed.training.trainer.SupervisedEngine"),
        ("fedmed.engines.mask_recorder.MaskDice", "fedmed.training.mask_recorder.MaskDice"),
        ("fedmed.aggregation.weighted_mean.WeightedMean", None),
        ("fedmed.methods.supervised_fedavg.SupervisedFedAvg", None),
        (NEW, None),
        ("our.methods.feduda.FedUDA", None),
        ("fedmed.engines", None),
    ],
)
def test_where_a_class_is_now(old, new):
    assert new_path(old) == new and hint(f"path: {old}").count("now") == bool(new)


@pytest.mark.parametrize(
    "module", sorted({f"fedmed.{now}" for now in NOW_IN} | {r for r in ROOMS.values() if r[0] == "f"})
)
def test_there_is_a_module_under_every_new_name(module):
    assert importlib.util.find_spec(module)


def test_a_study_says_it_with_its_line():
    with pytest.raises(JobError, match=f"study.yaml, line 3: .*{SENTENCE}"):
        Job.parse(STUDY % OLD)


def test_a_site_that_allows_it(tmp_path):
    (tmp_path / "a.yaml").write_text(f"data_root: {tmp_path}\nallowed_classes: [{OLD}]\n")
    with pytest.raises(SiteConfigError, match=f"a.yaml, line 2: .*{SENTENCE}"):
        load_file(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    "text", ["loss:\n  _target_: fedmed.losses.nt_xent.NTXent\n", "a: '$fedmed.losses.nt_xent.f()'\n"]
)
def test_a_bundle_s_configuration(text, tmp_path):
    (tmp_path / "train.yaml").write_text(text)
    with pytest.raises(BundleError, match="train.yaml: 'fedmed.losses.nt_xent.* is 'fedmed.systems.fedcy.loss"):
        BundleParser.load_config_file(tmp_path / "train.yaml")


def test_what_a_server_kept():
    rule, kept = LabelledMean(), {"rule": "fedmed.aggregation.labelled_mean.LabelledMean", "state": {}}
    with pytest.raises(StateError, match="is 'fedmed.systems.agreement.server.LabelledMean' now; finish that run with"):
        TransactionalAggregator(rule, None).restore(kept, {})


def test_what_a_site_kept_of_its_corrections():
    old = "fedmed.engines.corrections.proximal.ProximalTerm"
    kept = {"corrections": [{"path": old, "state": {}}]}
    with pytest.raises(StateError, match=f"'{old}' of an earlier FedMed is 'fedmed.systems.algorithms.fedprox.Prox"):
        Corrections().load_state_dict(kept)
