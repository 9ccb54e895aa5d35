"""Tiny sites, tiny jobs for them, and runs of these: for every test that needs a federation of images."""

import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml

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

    path, config_file = Path(__file__).with_name("two_levels.yaml"), Bundle.config_file
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


@pytest.fixture(scope="session")
def lively(write_tiny_job, tmp_path_factory):
    """Overrides with which the unlabelled site moves too: a threshold that a barely trained model passes."""
    from fedmed.jobs.job_folder import read_job

    overrides = read_job(write_tiny_job(tmp_path_factory.mktemp("lively"))).overrides("supervised")
    unsupervised = {**overrides, "confidence": 0.5, "unsupervised_learning_rate": 1e-3}
    return {"supervised": overrides, "unsupervised": unsupervised, "evaluate": overrides}
