"""The one form of a job's configurations: every job of the repository has it, and anything else is refused."""

import json
import subprocess
import sys
from copy import deepcopy
from pathlib import Path

import pytest

from fedmed.errors import JobError
from fedmed.jobs.app_shape import AGGREGATORS, CLIENT, EXECUTORS, SERVER, check_shape, client_config, server_config
from fedmed.jobs.job_classes import PARTIAL
from fedmed.methods.find_method import installed

JOBS = Path(__file__).resolve().parents[2] / "jobs"
EXECUTOR = "fedmed.flare.executors.SupervisedExecutor"
AGGREGATOR = "fedmed.flare.aggregators.IterationWeightedAggregator"
GOOD = {CLIENT: client_config(EXECUTOR, ["train", "evaluate"]), SERVER: server_config(AGGREGATOR)}
HE = {"path": "nvflare.app_opt.he.model_encryptor.HEModelEncryptor", "args": {}}
PERSISTOR = {
    "id": "persistor",
    "path": "nvflare.app_common.ccwf.comps.np_file_model_persistor.NPFileModelPersistor",
    "args": {"initial_model": "/srv/patients/scan.npy"},
}
CYCLIC = {"tasks": ["cyclic_*"], "executor": {"path": "nvflare.app_common.ccwf.CyclicClientController", "args": {}}}
ERRORS = ["analytix_log_stats", "_error_log_available"]


def test_every_job_of_the_repository_has_it():
    files = [path for name in (CLIENT, SERVER) for path in JOBS.glob(f"*/*/config/{name}")]
    assert len(files) > 40
    for path in files:
        check_shape(json.loads(path.read_text()), str(path.relative_to(JOBS)), "the job")


def test_every_method_names_classes_of_the_lists():
    methods = [kind() for kind in installed().values()]
    assert all(EXECUTORS.fullmatch(role.executor) for method in methods for role in method.roles().values())
    assert all(AGGREGATORS.fullmatch(path) for path in (PARTIAL, *(method.aggregator for method in methods)))


def put(*path):
    """A function that puts a value at a place of a configuration, also right behind the end of a list."""
    *before, last, value = path

    def change(config):
        for step in before:
            config = config[step]
        if isinstance(config, list) and last == len(config):
            config.append(value)
        else:
            config[last] = value

    return change


CHANGES = {
    "another executor": (CLIENT, put("executors", 0, CYCLIC), "executors[0].tasks"),
    "one more executor": (CLIENT, put("executors", 1, CYCLIC), "executors[1]"),
    "an executor's arguments": (
        CLIENT,
        put("executors", 0, "executor", "args", "x", 1),
        "executors[0].executor.args.x",
    ),
    "an executor's name": (CLIENT, put("executors", 0, "executor", "name", "X"), "executors[0].executor.name"),
    "an executor of the server": (CLIENT, put("executors", 0, "executor", "path", AGGREGATOR), "executor.path"),
    "an executor from elsewhere": (CLIENT, put("executors", 0, "executor", "path", f"x.{EXECUTOR}"), "executor.path"),
    "another task": (CLIENT, put("executors", 0, "tasks", ["train", "submit_model"]), "executors[0].tasks"),
    "every task": (CLIENT, put("executors", 0, "tasks", ["*"]), "executors[0].tasks[0]"),
    "no task": (CLIENT, put("executors", 0, "tasks", []), "executors[0].tasks"),
    "tasks in a text": (CLIENT, put("executors", 0, "tasks", "train"), "executors[0].tasks"),
    "a filter before a task": (CLIENT, put("task_data_filters", 0, {"tasks": ["*"], "filters": [HE]}), "task_data_f"),
    "no limits": (CLIENT, put("task_result_filters", []), "task_result_filters[0]"),
    "another filter behind": (CLIENT, put("task_result_filters", 0, "filters", 1, HE), "filters[1]"),
    "the limits of one task": (
        CLIENT,
        put("task_result_filters", 0, "tasks", ["train"]),
        "task_result_filters[0].tasks",
    ),
    "a file as a model": (CLIENT, put("components", 1, PERSISTOR), "components[1]"),
    "another event": (CLIENT, put("components", 0, "args", "events_to_convert", ERRORS), "events_to_convert[1]"),
    "errors alone": (CLIENT, put("components", 0, "args", "events_to_convert", ERRORS[1:]), "events_to_convert[0]"),
    "another prefix": (CLIENT, put("components", 0, "args", "fed_event_prefix", "x."), "args.fed_event_prefix"),
    "another id": (CLIENT, put("components", 0, "id", "x"), "components[0].id"),
    "a setting of NVFlare's": (CLIENT, put("default_task_fetch_interval", 0.1), "default_task_fetch_interval"),
    "true for 1": (CLIENT, put("format_version", 2.0), "format_version"),
    "another workflow": (
        SERVER,
        put("workflows", 0, "path", "nvflare.app_common.workflows.fedavg.FedAvg"),
        "workflows",
    ),
    "one more workflow": (SERVER, put("workflows", 1, HE), "workflows[1]"),
    "another aggregator": (SERVER, put("components", 1, "path", HE["path"]), "components[1].path"),
    "events of all kinds": (SERVER, put("components", 2, "args", "events", ["fed.*"]), "components[2].args.events[0]"),
    "a component more": (SERVER, put("components", 3, HE), "components[3]"),
    "a filter at the server": (SERVER, put("task_result_filters", 0, HE), "task_result_filters[0]"),
    "another interval": (SERVER, put("server", "task_request_interval", 100), "server.task_request_interval"),
}


@pytest.mark.parametrize(("file", "change", "place"), CHANGES.values(), ids=CHANGES)
def test_anything_else_is_refused_and_its_place_named(file, change, place):
    config = deepcopy(GOOD[file])
    check_shape(config, f"app/config/{file}", "the job")
    change(config)
    with pytest.raises(JobError, match="the job: 'app/config/.*is not as FedMed writes it") as refused:
        check_shape(config, f"app/config/{file}", "the job")
    assert place in str(refused.value) and "study package" in str(refused.value)


@pytest.mark.parametrize("file", [CLIENT, SERVER])
@pytest.mark.parametrize("key", ["format_version", "components", "executors", "workflows", "task_result_filters"])
@pytest.mark.parametrize("value", [None, "x", {}, [[]], [{"path": 1}]])
def test_odd_values_are_refused_too(file, key, value):
    with pytest.raises(JobError):
        check_shape({**GOOD[file], key: value}, file, "the job")
    with pytest.raises(JobError):
        check_shape({name: kept for name, kept in GOOD[file].items() if name != "components"}, file, "the job")


def test_a_site_that_waits_loads_no_torch_for_it():
    script = "import sys, fedmed.jobs.app_shape; assert not {'torch', 'nvflare', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", script], check=True)
