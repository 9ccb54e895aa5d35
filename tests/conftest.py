"""Fixtures that every test may use: a private home for demo data and caches, tiny sites, tiny jobs."""

import gc
import gzip
import importlib.util
import logging
import os
import shutil
import struct
import sys
from pathlib import Path

import fedmed  # noqa: F401 - before PyTorch and MONAI, which would load much that no test needs

# isort: split
import pytest
import torch
import yaml
from filelock import FileLock

CHECKOUT = Path(__file__).resolve().parents[1]
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # its handlers, left by an e2e test, may end any later fork of the tests
SITES = {
    "ct_north": "supervised",
    "ct_south": "supervised",
    "ct_east": "unsupervised",
    "ct_west": "evaluate",
}
VIDEO_SITES = {"lap_hei1": "supervised", "lap_hei2": "supervised"}
PHASE_SITES = {
    "lap_harbor": "supervised",
    "lap_bay": "unsupervised",
    "lap_cliff": "unsupervised",
    "lap_isle": "evaluate",
}


def pytest_collection():
    """Collect no garbage while modules are imported: nearly all that is made then stays."""
    gc.disable()


def pytest_collection_finish():
    """Leave the modules out of garbage collections, and collect seldom: it takes much of the time of the tests."""
    gc.freeze()
    gc.set_threshold(2_000, 10, 50)
    gc.enable()


def job_of(**values):
    """A job from a study's values; of the CT bundle and Yang's method unless they say otherwise."""
    from fedmed.jobs.job import Job
    from fedmed.settings.server import load_server

    method = {"path": "fedmed.systems.covid_fssl.method.Consistency"}
    allowed = load_server().allowed_classes
    return Job.of({"bundle": "covid_ct_segmentation", "method": method, **values}, allowed)


@pytest.fixture(scope="session", name="job_of")
def _job_of():
    """Return ``job_of``: a job from a study's values."""
    return job_of


@pytest.fixture(scope="session")
def store_of():
    """Return a function: folder, bundle, overlays, values of a study -> the models of a job of one labelled site."""
    from fedmed.recovery.model_store import ModelStore

    def made(folder, bundle, overlays=(), **values):
        method = {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}
        said = {"bundle": bundle, "overlays": list(overlays), "method": method, "sites": {"a": "supervised"}, **values}
        return ModelStore(job_of(name="x", rounds=1, steps=1, **said), folder)

    return made


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


@pytest.fixture
def no_charts(request, monkeypatch):
    """Leave charts out of pages, most of whose time they take: for tests that read a page's words."""
    if "charts" not in request.fixturenames:
        monkeypatch.setattr("fedmed.reports.run_page.drawn", lambda run, named: dict.fromkeys(named))
        monkeypatch.setattr("fedmed.reports.plots.svg", lambda figure, name: "")


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


@pytest.fixture(scope="session")
def tiny_site_configs(fedmed_home):
    """Folder of site YAMLs for the tiny demo federations, also for processes that a test starts."""
    folder = fedmed_home / "site_configs"
    folder.mkdir()
    kinds = {"chest_ct_tiny": SITES, "lap_tools_tiny": VIDEO_SITES, "lap_phases_tiny": PHASE_SITES}
    for kind, sites in kinds.items():
        for site in sites:
            values = {"demo": kind, "device": "cpu", "threads": 1}
            (folder / f"{site}.yaml").write_text(yaml.safe_dump(values))
    os.environ["FEDMED_SITE_CONFIGS"] = str(folder)
    yield folder
    del os.environ["FEDMED_SITE_CONFIGS"]


@pytest.fixture(scope="session")
def write_allowing_sites(tiny_site_configs):
    """Return a function: folder, names -> the folder, new, with YAMLs of tiny sites that let these values leave."""

    def write(folder: Path, *names: str) -> Path:
        folder.mkdir()
        for path in tiny_site_configs.glob("*.yaml"):
            values = yaml.safe_load(path.read_text()) | {"privacy": {"allowed_extras": list(names)}}
            (folder / path.name).write_text(yaml.safe_dump(values))
        return folder

    return write


@pytest.fixture
def allow_extras(write_allowing_sites, tmp_path, monkeypatch):
    """Return a function: the tiny sites let these values leave beside the model."""

    def allow(*names):
        monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(write_allowing_sites(tmp_path / "allowing_sites", *names)))

    return allow


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


@pytest.fixture(scope="session")
def write_tiny_job(tiny_site_configs):
    """Return a function that writes a tiny job below a folder; keyword arguments change the job."""
    from fedmed.jobs.job_folder import write_job

    def write(folder: Path, name: str = "tiny", **changes) -> Path:
        roles = ("supervised", "unsupervised", "evaluate")
        small = {"batch_size": 1, "patch_size": [16, 16, 8], "window_size": [24, 24, 8], "pixdim": [16.0, 16.0, 40.0]}
        settings = {"sites": SITES, "rounds": 1, "steps": 2, "overlays": ["demo", "coarse"]}
        settings["overrides"] = {role: dict(small) for role in roles}
        return write_job(job_of(name=name, **{**settings, **changes}), folder / name)

    return write


@pytest.fixture(scope="session")
def two_levels():
    """Overlays with a smaller network still, tests/two_levels.yaml: for runs in this process, which alone has it."""
    from fedmed.bundles.bundle import Bundle

    path, config_file = CHECKOUT / "tests" / "two_levels.yaml", Bundle.config_file
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bundle, "config_file", lambda self, name: path if name == path.stem else config_file(self, name))
        yield ["demo", path.stem]


@pytest.fixture(scope="session")
def change_study():
    """Return a function: gives the studies of all apps of a job folder other values; returns the folder."""
    from fedmed.jobs.study_text import changed_text

    def change(job: Path, **values) -> Path:
        for path in sorted(job.glob("app_*/config/study.yaml")):
            path.write_text(changed_text(path.read_text(), values))
        return job

    return change


@pytest.fixture
def tiny_job(tmp_path, write_tiny_job):
    """Return a function that writes a tiny job and gives its folder; keyword arguments change the job."""
    return lambda name="tiny", **changes: write_tiny_job(tmp_path / "jobs", name, **changes)


@pytest.fixture(scope="session")
def write_tiny_tools_job(write_tiny_job):
    """Return a function as ``write_tiny_job``, for tools in videos at two hospitals."""
    small = {"supervised": {"image_size": [24, 32], "batch_size": 8}}
    method = {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg", "args": {"weighting": "samples"}}
    spec = {"bundle": "surgical_tool_classification", "overlays": ["demo"], "method": method}
    spec |= {"sites": VIDEO_SITES, "overrides": small}
    return lambda folder, name="tools", **changes: write_tiny_job(folder, name, **{**spec, **changes})


@pytest.fixture(scope="session")
def tiny_phases():
    """Overrides with which hospitals with videos of phases have an epoch in a second."""
    small = {"image_size": [24, 32], "frame_rate": 2.0}
    cycles = {**small, "batch_size": 2, "clip_size": 8}
    return {"supervised": {**small, "batch_size": 16}, "unsupervised": cycles, "evaluate": {**small, "batch_size": 16}}


@pytest.fixture(scope="session")
def write_tiny_phases_job(write_tiny_job, tiny_phases):
    """Return a function as ``write_tiny_job``, for phases in videos at four hospitals of which one has labels."""
    method = {"path": "fedmed.systems.fedcy.method.FedCy"}
    spec = {"bundle": "surgical_phase_classification", "overlays": ["demo"], "method": method}
    spec |= {"sites": PHASE_SITES, "overrides": tiny_phases}
    return lambda folder, name="phases", **changes: write_tiny_job(folder, name, **{**spec, **changes})


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory, write_tiny_job, made_once):
    """Workspace of a finished tiny run: a labelled, an unlabelled and an evaluated site. Do not write to it."""
    from fedmed.federation.loop import run_job

    def make():
        folder = tmp_path_factory.mktemp("finished")
        sites = {site: SITES[site] for site in ("ct_north", "ct_east", "ct_west")}
        job = write_tiny_job(folder, "study", sites=sites, rounds=2, overlays=["demo", "coarse"])
        run_job(job, folder / "workspace")
        return folder / "workspace"

    return made_once("finished_run", make)


@pytest.fixture(scope="session")
def exported_bundle(tmp_path_factory, finished_run, made_once):
    """The bundle exported from ``finished_run``. Do not write to it."""
    from fedmed.export.bundle import export_bundle

    def make():
        return export_bundle(finished_run, tmp_path_factory.mktemp("exported") / "covid_ct_segmentation").out

    return made_once("exported_bundle", make)


@pytest.fixture(scope="session")
def undecided_bundle(exported_bundle, tmp_path_factory):
    """``exported_bundle`` with a threshold that a part of the voxels passes, so that a mask shows every shift."""
    from monai.bundle import ConfigParser

    from fedmed.bundles.digests import read_digests, write_digests

    root = tmp_path_factory.mktemp("undecided") / exported_bundle.name
    shutil.copytree(exported_bundle, root)
    config = ConfigParser.load_config_file(root / "configs" / "inference.yaml")
    parser = ConfigParser(dict(config))
    network = parser.get_parsed_content("network_def").eval()
    network.load_state_dict(torch.load(root / "models" / "model.pt", weights_only=True))
    window = torch.rand(1, 1, *config["window_size"], generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        config["threshold"] = float(torch.softmax(network(window), 1)[0, 1].median())
    (root / "configs" / "inference.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    write_digests(root, read_digests(root)["made_of"])
    return root


@pytest.fixture
def unscored(monkeypatch):
    """Scoring takes most of a tiny run; where it is not the question it is left out."""
    from fedmed.federation.client import Client

    monkeypatch.setattr(Client, "_score", lambda self, task, parser: {"val_dice": 0.5})
    monkeypatch.setattr(Client, "evaluate", lambda self, task: {"n_cases": 0})


@pytest.fixture(scope="session")
def lively(write_tiny_job, tmp_path_factory):
    """Overrides with which the unlabelled site moves too: a threshold that a barely trained model passes."""
    from fedmed.jobs.job_folder import read_job

    overrides = read_job(write_tiny_job(tmp_path_factory.mktemp("lively"))).overrides("supervised")
    unsupervised = {**overrides, "confidence": 0.5, "unsupervised_learning_rate": 1e-3}
    return {"supervised": overrides, "unsupervised": unsupervised, "evaluate": overrides}


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
