"""A federation of networks of a few numbers through client, engine and server, dozens of rounds a second."""

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from fedmed.federation import run_record
from fedmed.federation.exchange import Exchange
from fedmed.federation.loop import run_job
from fedmed.federation.server import Server
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.jobs.study import Named, Study
from fedmed.methods.declarations import Exchanged
from fedmed.settings.server import ALLOWED
from fedmed.settings.site import load_file
from tests.federation import run_folder
from tests.federation.run_folder import Killed
from tests.jobs.demo_sites import note_messages

HERE = Path(__file__).parent
FEDAVG = {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg", "args": {"weighting": "samples"}}
STUDY = {"bundle": "small_bundle", "method": FEDAVG, "select": "last", "evaluate": False, "rounds": 2, "steps": 4}
PARABOLAS = {"a": [(1.0, 1.0)], "b": [(3**0.5, -(3**0.5))]}  # (w - 1)²/2 and 3 (w + 1)²/2: both together -0.5

OWN_METHOD = "moon.Moon"  # a file of a hospital: tests/methods/moon.py
LAYERS = {"overlays": ["layers"], "overrides": {"supervised": {"batch_size": 2, "learning_rate": 0.1, "momentum": 0.9}}}


@pytest.fixture(scope="session")
def write_tiny_job(write_tiny_job, two_levels):
    """Return a function as that of all tests; of CT jobs it makes the network smaller still."""
    return lambda folder, name="tiny", **changes: write_tiny_job(folder, name, **{"overlays": two_levels, **changes})


def pairs(site, number=8):
    """Synthetic pairs for overlay ``layers``; sites are unlike."""
    draw = torch.Generator().manual_seed(ord(site))
    return [(torch.randn(3, generator=draw).tolist(), torch.randn(1, generator=draw).tolist()) for _ in range(number)]


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Return a function: sites with layers, or those of the parabolas, and values of a study -> server.

    ``own``: site -> further values of its YAML.

    The workspace is ``tmp_path / name``.
    """
    monkeypatch.setenv("FEDMED_BUNDLES", str(HERE))
    monkeypatch.syspath_prepend(str(HERE / "small_bundle"))
    monkeypatch.syspath_prepend(str(HERE.parent / "methods"))
    monkeypatch.setenv(ALLOWED, OWN_METHOD)
    monkeypatch.setattr(run_record, "package_versions", dict)
    monkeypatch.setattr(run_record, "hardware", dict)

    written = {}  # name of a job -> the values that it was written with

    def small(data="", name="ws", resume=False, roles=None, local=None, **changes):
        sites = {site: _site(tmp_path / "sites" / site, rows, local) for site, rows in _rows(data).items()}
        said = {**STUDY, **(LAYERS if data else {}), **changes, "name": name}
        said["sites"] = dict.fromkeys(sites, "supervised") | (roles or {})
        if written.get(name) != said:
            write_job(Job.of(said, allowed=[OWN_METHOD]), tmp_path / "jobs" / name, replace=True)
            written[name] = said
        return run_job(tmp_path / "jobs" / name, tmp_path / name, sites, resume)

    yield small
    sys.modules.pop("small", None)


def _rows(data):
    return {site: pairs(site) for site in data} if isinstance(data, str) and data else data or PARABOLAS


def _site(folder, rows, local=None):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "datalist.json").write_text(json.dumps({"training": rows}))
    path = folder / f"{folder.name}.yaml"
    privacy = {"account": "account.json", "allowed_extras": ["amplitude", "control_difference", "fim_trace"]}
    values = {"data_root": str(folder), "device": "cpu", "threads": 1, "privacy": privacy}
    values |= {"allowed_classes": [OWN_METHOD]}
    path.write_text(yaml.safe_dump({**values, **(local or {}).get(folder.name, {})}))
    return load_file(path)


@pytest.fixture
def exchange_of():
    """Return a function: site -> role, and what a method says of its exchange -> the server's side of it."""

    def made(sites, **said):
        study = Study(name="x", bundle="b", method=Named(path="m"), sites=sites, rounds=3, steps=1)
        return Exchange(SimpleNamespace(study=study, exchange=Exchanged(**said)))

    return made


@pytest.fixture
def seen(monkeypatch):
    """Every task and answer of a run, in order: (site, task, answer)."""
    messages = []
    note_messages(monkeypatch, messages, "train", "metadata")
    return messages


@pytest.fixture
def streamed(monkeypatch):
    """Scalars that a server has for TensorBoard: (name, value, round)."""
    scalars, made = [], Server.__init__

    def init(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.stream = lambda *scalar: scalars.append(scalar)

    monkeypatch.setattr(Server, "__init__", init)
    return scalars


@pytest.fixture
def killed_before(monkeypatch):
    """Return a function: a context in which a run ends before a round, as if its process were killed."""
    begin = Server.train_tasks

    @contextmanager
    def killed_before(round):
        def tasks(self, number):
            if number == round:
                raise Killed
            return begin(self, number)

        with monkeypatch.context() as patch, pytest.raises(Killed):
            patch.setattr(Server, "train_tasks", tasks)
            yield

    return killed_before


@pytest.fixture
def same():
    """Return a function: see ``same`` in tests/federation/run_folder.py."""
    return run_folder.same


SERVING = "serving.Serving"


@pytest.fixture
def serving(tmp_path):
    """Return a function: arguments of the method, name of the workspace, values of a study -> a server that trained.

    Settings of the server are in ``tmp_path / "sites" / "server.yaml"``, its images those of three seeds.
    """
    with serving_below(tmp_path) as serving:
        yield serving


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """Folder of workspace ``whole``, of a run of ``serving`` that nobody interrupts, and its server. Do not change."""
    folder = tmp_path_factory.mktemp("served")
    with serving_below(folder) as serving:
        return folder, serving("whole")


@contextmanager
def serving_below(folder):
    """The function of ``serving``, for a folder."""
    with pytest.MonkeyPatch.context() as patch:
        yield from _serving(folder, patch)


def _serving(folder, patch):
    patch.setenv("FEDMED_BUNDLES", str(HERE))
    patch.syspath_prepend(str(HERE / "serving_bundle"))
    patch.setenv("FEDMED_SITE_CONFIGS", str(folder / "sites"))
    patch.setattr(run_record, "package_versions", dict)
    patch.setattr(run_record, "hardware", dict)
    sites = {site: _serving_site(folder / "sites" / site, start) for site, start in {"a": 10, "b": 20}.items()}
    _images(folder / "sites" / "server", [1, 2, 3])
    said = {"data_root": "server", "device": "cpu", "allowed_classes": [SERVING]}
    (folder / "sites" / "server.yaml").write_text(yaml.safe_dump(said))

    def serving(name="ws", resume=False, args=None, **changes):
        values = {**STUDY, "bundle": "serving_bundle", "sharing": "own", "steps": 2, **changes, "name": name}
        values |= {"method": {"path": SERVING, "args": args or {}}, "sites": dict.fromkeys(sites, "supervised")}
        job = write_job(Job.of(values, [SERVING]), folder / "jobs" / name, replace=True)
        return run_job(job, folder / name, sites, resume)

    try:
        yield serving
    finally:
        sys.modules.pop("serving", None)


def _images(folder, seeds):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "datalist.json").write_text(json.dumps({"training": seeds}))


def _serving_site(folder, start):
    _images(folder, list(range(start, start + 4)))
    path = folder / f"{folder.name}.yaml"
    privacy = {"account": "account.json"}
    said = {"data_root": str(folder), "device": "cpu", "privacy": privacy, "allowed_classes": [SERVING]}
    path.write_text(yaml.safe_dump(said))
    return load_file(path)
