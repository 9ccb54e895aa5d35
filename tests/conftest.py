"""Fixtures that every test may use: a private home for demo data and caches, files, faults, less to wait for."""

import gc
import gzip
import importlib.util
import logging
import os
import struct
import sys
from pathlib import Path

import fedmed  # noqa: F401 - before PyTorch and MONAI, which would load much that no test needs

# isort: split
import pytest
import torch
from filelock import FileLock

CHECKOUT = Path(__file__).resolve().parents[1]
pytest_plugins = ["tests.tiny_jobs"]
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # its handlers, left by an e2e test, may end any later fork of the tests


def pytest_collection():
    """Collect no garbage while modules are imported: nearly all that is made then stays."""
    gc.disable()


def pytest_collection_finish():
    """Leave the modules out of garbage collections, and collect seldom: it takes much of the time of the tests."""
    gc.freeze()
    gc.set_threshold(2_000, 10, 50)
    gc.enable()


def _shared_folder(tmp_path_factory) -> Path:
    """Folder of all processes of a test session."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session")
def made_once(tmp_path_factory):
    """Return a function: name, function that makes a file or folder -> what the session's first process has made."""

    def made_once(name: str, make) -> Path:
        note = _shared_folder(tmp_path_factory) / f"{name}.made"
        with FileLock(note.with_suffix(".lock")):
            if not note.exists():
                note.write_text(str(make()))
        return Path(note.read_text())

    return made_once


@pytest.fixture(scope="session", autouse=True)
def fedmed_home(tmp_path_factory):
    """Demo data and caches of a test session lie in its own folder, never in the user's."""
    home = tmp_path_factory.mktemp("fedmed_home")
    shared = _shared_folder(tmp_path_factory) / "demo"  # locked by the product where two processes want the same site
    shared.mkdir(exist_ok=True)
    (home / "demo").symlink_to(shared)
    os.environ["FEDMED_HOME"] = str(home)
    torch.set_num_threads(1)
    yield home
    del os.environ["FEDMED_HOME"]


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_disks():
    """What a test writes need not outlast a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def coarse_pictures():
    """PNGs of reports and tables have few dots: a test looks at what is drawn, and drawing them takes long."""
    from fedmed.reports import plots

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots.png, "__defaults__", (None, 50))
        yield


@pytest.fixture
def charts():
    """Asked for by tests that look at the charts of a page, where others of their file use ``no_charts``."""


def leave_charts_out(patch):
    """Draw no charts in pages, most of whose time they take."""
    patch.setattr("fedmed.reports.run_page.drawn", lambda run, named: dict.fromkeys(named))
    patch.setattr("fedmed.reports.plots.svg", lambda figure, name: "")


@pytest.fixture
def no_charts(request, monkeypatch):
    """Leave charts out of pages: for tests that read a page's words."""
    if "charts" not in request.fixturenames:
        leave_charts_out(monkeypatch)


@pytest.fixture
def no_torchscript(monkeypatch):
    """Leave out TorchScript, which takes half of an export's time: for tests that look at what else is written."""
    monkeypatch.setattr("fedmed.export.bundle.write_torchscript", lambda *_: "TorchScript was left out.")


@pytest.fixture(scope="session")
def example_federation(tmp_path_factory):
    """The example project, provisioned. Do not change it."""
    from fedmed.provisioning.kits import Federation, read_project
    from fedmed.provisioning.make_kits import EXAMPLE

    federation = Federation.open(tmp_path_factory.mktemp("provision") / "study")
    federation.provision(read_project(EXAMPLE))
    return federation


@pytest.fixture(autouse=True)
def same_log():
    """Scripts that a test runs in this process quieten FedMed's log, and the next test may look into it."""
    log = logging.getLogger("fedmed")
    level, propagate = log.level, log.propagate
    yield
    log.setLevel(level)
    log.propagate = propagate


@pytest.fixture(scope="session")
def write_dicom():
    """Write a CT series as ``folder/slice<n>.dcm``: see ``dicom_series`` in tests/dicom_files.py."""
    return _load(CHECKOUT / "tests" / "dicom_files.py").dicom_series


@pytest.fixture(scope="session")
def change_dicom():
    """Set attributes of the slices of a folder: see ``change_slices`` in tests/dicom_files.py."""
    return _load(CHECKOUT / "tests" / "dicom_files.py").change_slices


@pytest.fixture(scope="session")
def compress_dicom():
    """Turn a DICOM file into JPEG Lossless: see ``compress`` in tests/dicom_files.py."""
    return _load(CHECKOUT / "tests" / "dicom_files.py").compress


@pytest.fixture(scope="session")
def claim_shape():
    """Let the header of a packed NIfTI file state another shape; its voxels stay as few as they are."""

    def claim(path: Path, *shape: int) -> Path:
        content = bytearray(gzip.decompress(path.read_bytes()))
        content[40:48] = struct.pack("<4h", 3, *shape)  # dim[0] to dim[3]
        path.write_bytes(gzip.compress(bytes(content)))
        return path

    return claim


@pytest.fixture(scope="session")
def secrets_type():
    """The class that finds a site's secrets in captured bytes: see ``Secrets`` in tests/leaks.py."""
    return _load(CHECKOUT / "tests" / "leaks.py").Secrets


@pytest.fixture(scope="session")
def hostile_jobs():
    """Jobs that try to read the machine that they come to, and bait for them: see tests/hostile_jobs.py."""
    return _load(CHECKOUT / "tests" / "hostile_jobs.py")


def _load(path: Path):
    spec = importlib.util.spec_from_file_location(f"fedmed_script_{path.stem}", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look for their module there
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def answers(monkeypatch):
    """What sites were sent to train, and sent back: (task, update)."""
    from fedmed.federation.client import Client

    result, train = [], Client.train

    def spy(self, task):
        result.append((task, train(self, task)))
        return result[-1][1]

    monkeypatch.setattr(Client, "train", spy)
    return result


@pytest.fixture
def unscored(monkeypatch):
    """Scoring takes most of a tiny run; where it is not the question it is left out."""
    from fedmed.federation.client import Client

    monkeypatch.setattr(Client, "_score", lambda self, task, parser: {"val_dice": 0.5})
    monkeypatch.setattr(Client, "evaluate", lambda self, task: {"n_cases": 0})


@pytest.fixture(scope="session")
def faulty_executor():
    """``FaultyExecutor`` of tests/faulty_executor.py."""
    return _load(CHECKOUT / "tests" / "faulty_executor.py").FaultyExecutor


@pytest.fixture(scope="session", autouse=True)
def quick_monai():
    """MONAI reads configurations as FedMed does: by libyaml, ten times as quick, and it looks through itself once."""
    from fedmed.bundles import bundle_parser

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("monai.bundle.config_parser.CheckKeyDuplicatesYamlLoader", bundle_parser.YAML_READER)
        patch.setattr("monai.bundle.config_parser.ComponentLocator", bundle_parser._Locator)
        yield


@pytest.fixture(scope="session", autouse=True)
def torch_hands_its_records_on():
    """PyTorch has some seventy loggers that do not, and pytest would put a handler at each of them six times a test."""
    for logger in logging.Logger.manager.loggerDict.values():
        if isinstance(logger, logging.Logger) and logger.name.startswith("torch"):
            logger.propagate = True


@pytest.fixture
def unarranged_figures(monkeypatch):
    """Leave the parts of figures where they are, since to arrange them takes two fifths of drawing: for tests that do
    not look at where they are."""
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    monkeypatch.setattr(ConstrainedLayoutEngine, "execute", lambda self, figure: None)
