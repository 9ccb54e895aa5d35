"""What real sites take and send, and jobs after more than that, which neither they nor their server run.

Each wall is asked alone: the server's look at a submitted job; that of the sites, where a server takes every job; and
the sites' lists of messages, where nobody has looked and every class may be loaded.
"""

import json

import numpy as np
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from fedmed.jobs.app_shape import client_config, server_config

SITES = {"ct_north": "supervised", "ct_east": "unsupervised"}
HOLDS, OTHER = SITES
LOOKS, LISTS = "plain_jobs", "site_messages"  # the parts of a kit: who looks at jobs, and the lists of messages
ERROR, PATIENT = "_error_log_available", "Meier-4711"
SECRET = np.random.default_rng(4711).normal(size=(3, 3)).astype(np.float32)


BELIEVING = """
from nvflare.app_common.ccwf import CyclicServerController

class Believing(CyclicServerController):
    '''Goes on when a site's answer was held back.'''

    def _process_configure_reply(self, client_task, fl_ctx):
        client_task.result.set_return_code("OK")
        super()._process_configure_reply(client_task, fl_ctx)

    def _process_start_reply(self, client_task, fl_ctx):
        client_task.result.set_return_code("OK")
        super()._process_start_reply(client_task, fl_ctx)
"""


def part(path: str, id: str = "", **args) -> dict:
    return {**({"id": id} if id else {}), "path": f"nvflare.app_common.{path}", "args": args}


def from_site_to_site(file):
    """NVFlare's cyclic workflow: the first site sends the other one what a file of its own holds."""
    server, client = server_config(""), client_config("", ["train"])
    reported = {"num_rounds": 1, "starting_client": HOLDS, "progress_timeout": 60.0}
    workflow = {"id": "controller", "path": "believing.Believing", "args": reported}
    server |= {"components": [], "workflows": [workflow]}
    client["executors"] = [
        {"tasks": ["cyclic_*"], "executor": part("ccwf.CyclicClientController")},
        {"tasks": ["train"], "executor": part("ccwf.comps.np_trainer.NPTrainer", delta=0)},
    ]
    client["components"] = [
        part("ccwf.comps.np_file_model_persistor.NPFileModelPersistor", "persistor", source_ckpt_file_full_name=file),
        part("ccwf.comps.simple_model_shareable_generator.SimpleModelShareableGenerator", "shareable_generator"),
    ]
    return server, client | {"task_result_filters": []}


def texts_of_errors(file):
    """An executor that fails on a path of the site, and each log of an error as an event at the server."""
    server, client = server_config(""), client_config("", ["train"])
    server["components"] = [
        part("np.np_model_persistor.NPModelPersistor", "persistor"),
        part("shareablegenerators.full_model_shareable_generator.FullModelShareableGenerator", "shareable_generator"),
        part("aggregators.intime_accumulate_model_aggregator.InTimeAccumulateWeightedAggregator", "aggregator"),
        server["components"][2] | {"args": {"events": [f"fed.{ERROR}"]}},
    ]
    reported = {"min_clients": 2, "num_rounds": 1, "persistor_id": "persistor", "wait_time_after_min_received": 0}
    server["workflows"] = [part("workflows.scatter_and_gather.ScatterAndGather", "controller", **reported)]
    client["components"][0]["args"]["events_to_convert"] = [ERROR]
    fails = part("np.np_trainer.NPTrainer", model_dir=f"/srv/patients/{PATIENT}", model_name="scan.npy")
    client["executors"] = [{"tasks": ["train"], "executor": fails}]
    return server, client | {"task_result_filters": []}


JOBS = {job.__name__: job for job in (from_site_to_site, texts_of_errors)}


@pytest.fixture
def submit(tmp_path):
    """Return a function: federation, name of a job, its sites -> what was said, and the job's id where it was taken."""

    def submit(federation, name: str, sites: tuple[str, ...] = tuple(SITES)) -> tuple[str, str]:
        np.save(tmp_path / "scan.npy", SECRET)
        job, (server, client) = tmp_path / name, JOBS[name](str(tmp_path / "scan.npy"))
        deploy = {"app_server": ["server"], "app_sites": list(sites)}
        for app, file in {"server": server, "sites": client}.items():
            (job / f"app_{app}" / "config").mkdir(parents=True)
            kind = "server" if app == "server" else "client"
            (job / f"app_{app}" / "config" / f"config_fed_{kind}.json").write_text(json.dumps(file))
        (job / "app_server" / "custom").mkdir()
        (job / "app_server" / "custom" / "believing.py").write_text(BELIEVING)
        (job / "meta.json").write_text(json.dumps({"name": name, "min_clients": len(sites), "deploy_map": deploy}))
        return federation.try_to_submit(job)

    return submit


@pytest.fixture
def started(start_federation):
    """Return a function: participant -> parts that its kit lacks, sites -> a running federation.

    Such kits take any class.
    """
    return lambda without, sites=SITES: start_federation(sites, without, class_allow_list=["*"])


def holds(folder, secret: bytes) -> list:
    return [file for file in folder.rglob("*") if file.is_file() and secret in file.read_bytes()]


def tensorboard(result) -> dict[str, set[str]]:
    """Participant -> names of its scalars."""
    return {
        path.parent.name: set(EventAccumulator(str(path)).Reload().Tags()["scalars"])
        for path in (result / "workspace" / "tb_events").rglob("events.out.tfevents.*")
    }


@pytest.mark.slow
def test_a_whole_job_needs_no_message_beyond_the_lists(federation, submit, write_tiny_job, tmp_path):
    for name in JOBS:
        said, id = submit(federation, name)
        assert not id and "is not as FedMed writes it, at '" in said
    id = federation.submit(write_tiny_job(tmp_path, "job", sites=SITES, rounds=2, custom=False))
    meta = federation.finish(id)
    assert meta["status"] == "FINISHED:COMPLETED", (meta, federation.said("server", *SITES))
    for site in SITES:
        logs = [federation.kit(site) / "log.txt", federation.run_folder(site, id) / "log.txt"]
        assert not [line for log in logs for line in log.read_text().splitlines() if "refused: " in line]
    scalars = tensorboard(federation.download(id))
    assert scalars["ct_north"] == {"train/loss", "validation/dice"}
    assert scalars["ct_east"] == {"train/loss", "train/confident_fraction", "train/foreground_fraction"}


def test_a_site_takes_no_such_job_from_a_server_that_takes_it(started, submit):
    federation = started({"server": {LOOKS}}, {HOLDS: SITES[HOLDS]})
    for name in JOBS:
        id = submit(federation, name, (HOLDS,))[1]
        detail = federation.finish(id)["job_deploy_detail"]
        assert f"{HOLDS}: NOT_PLAIN_JSON" in detail, (name, detail)
        assert f"job {id}: NOT_PLAIN_JSON: the job's app: " in (federation.kit(HOLDS) / "log.txt").read_text()
        assert not federation.run_folder(HOLDS, id).exists()


@pytest.mark.slow
@pytest.mark.parametrize("lists", [True, False], ids=["with the lists", "without, all of it leaves"])
def test_nothing_leaves_where_nobody_has_looked(started, submit, lists):
    federation = started({"server": {LOOKS}, **dict.fromkeys(SITES, {LOOKS} if lists else {LOOKS, LISTS})})
    ids = {name: submit(federation, name)[1] for name in JOBS}
    assert all(federation.finish(id)["status"].startswith("FINISHED") for id in ids.values())
    arrived = holds(federation.kit(OTHER), SECRET.tobytes())
    reported = holds(federation.download(ids["texts_of_errors"]) / "workspace", PATIENT.encode())
    assert [bool(arrived), bool(reported)] == [not lists] * 2
    if lists:
        log = (federation.run_folder(HOLDS, ids["from_site_to_site"]) / "log.txt").read_text()
        assert f"sending refused: topic '__do_task__' of channel 'aux_communication', '{OTHER}." in log
        runs = [federation.run_folder(site, ids["texts_of_errors"]) for site in SITES]
        log = "".join((run / "log.txt").read_text() for run in runs)  # the first one that fails ends the job
        assert PATIENT in log, "it has failed, and the site itself is told"
        assert f"sending refused: the event 'fed.{ERROR}' may not leave" in log
