"""What a hospital installs: the wheel alone, without synthetic hospitals and research, trains on its own files."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed_demo import demo_site
from tests.e2e.conftest import free_port
from tests.e2e.provisioned import Provisioned
from tests.kinds.volume_hospital import hospital

CHECKOUT = Path(__file__).resolve().parents[2]
SITES = ("north", "south")
ROUND = """
import sys
from importlib.util import find_spec
from pathlib import Path
import fedmed
from fedmed.federation.loop import run_job
from fedmed.settings.site import load_file

assert not [name for name in ("fedmed_demo", "research") if find_spec(name)]
job, workspace, *sites = map(Path, sys.argv[1:])
run_job(job, workspace, {path.stem: load_file(path) for path in sites})
print(Path(fedmed.__file__).parent)
"""


PIP = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
NVFLARE = "#!{python}\nimport sys\nfrom nvflare.cli import main\nsys.exit(main())\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel, built from the checkout's own files."""
    source, ignored = tmp_path_factory.mktemp("source"), shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    for name in ("custom", "bundles", "jobs", "studies", "site_configs"):
        shutil.copytree(CHECKOUT / name, source / name, ignore=ignored)
    subprocess.run([*PIP, "wheel", "--no-deps", "--no-build-isolation", "-w", source / "made", source], check=True)
    (wheel,) = (source / "made").glob("fedmed-*.whl")
    return wheel


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Folder with the wheel's content, which is what pip would put there."""
    out = tmp_path_factory.mktemp("installed")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(out)
    return out


@pytest.fixture
def fedmed(wheel, tmp_path):
    """Return a function that runs a command in an environment of the wheel and what it depends on alone."""
    python = tmp_path / "venv" / "bin" / "python"
    environment = {**os.environ, "FEDMED_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    environment.pop("PYTHONPATH", None)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", python.parents[1]], check=True)
    subprocess.run([*PIP, "--python", python, "install", "--no-deps", wheel], env=environment, check=True)
    # As a line of a .pth file the tests' own packages count, and their links, to this checkout too, do not.
    (folder,) = python.parents[1].glob("lib/python*/site-packages")
    (folder / "packages.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    (python.parent / "nvflare").write_text(NVFLARE.format(python=python))
    (python.parent / "nvflare").chmod(0o755)

    def run(*words):
        line = [python.parent / "fedmed", *words]
        done = subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
        return done.stdout

    run.python = python
    return run


@pytest.mark.slow
def test_from_images_to_a_bundle_without_a_checkout(fedmed, fedmed_home, tmp_path):
    for site, name in (("hospital_a", "ct_north"), ("hospital_b", "ct_east")):
        images = demo_site("chest_ct_tiny", name, fedmed_home) / "images"
        endings = ("--image-suffix", "_ct", "--mask-suffix", "_seg", "--masks", images.parent / "labels")
        fedmed("prepare", "ct", images, "--site", site, *(endings if site == "hospital_a" else ()))
    assert json.loads(fedmed("site", "check", "hospital_a", "--json"))["ready"]
    (tmp_path / "init.yaml").write_text(fedmed("study", "init", "consistency"))
    short = [
        "sites={hospital_a: supervised, hospital_b: unsupervised}",
        "rounds=2",
        "steps=1",
        "warm_start.rounds=1",
        "custom=false",
    ]
    fedmed("study", "package", "init.yaml", "job", *(word for one in short for word in ("--set", one)))
    assert "pip install" not in fedmed("study", "check", "job")
    fedmed("simulate", "job", "--workspace", "run")
    fedmed("export", "run", "lesions_segmentation")
    assert (tmp_path / "lesions_segmentation" / "models" / "model.ts").is_file()
    federation_of_the_wheel(fedmed.python, tmp_path)


def test_the_wheel_alone_trains_a_round(installed, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_BUNDLES", str(CHECKOUT / "tests" / "kinds"))
    sites = [hospital(tmp_path / site, seed) for seed, site in enumerate(SITES)]
    study = {"name": "own", "bundle": "volumes_bundle", "rounds": 1, "steps": 1}
    study |= {"method": {"path": "fedmed.methods.supervised_fedavg.SupervisedFedAvg"}}
    job = write_job(Job.of({**study, "sites": dict.fromkeys(SITES, "supervised")}), tmp_path / "job")
    # -S: the environment's own link to this checkout does not count.
    paths = os.pathsep.join([str(installed), sysconfig.get_paths()["purelib"]])
    environment = {**os.environ, "PYTHONPATH": paths, "FEDMED_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-S", "-c", ROUND, job, tmp_path / "ws", *sites]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1] == str(installed / "fedmed")
    result = json.loads((tmp_path / "ws/server/simulate_job/fedmed/result.json").read_text())
    assert set(result["test"]) == set(SITES)


def federation_of_the_wheel(python, folder):
    """Kits for a server and the two prepared sites, and one job over TLS, by that environment's processes alone."""
    sites = {"hospital_a": "supervised", "hospital_b": "unsupervised"}
    (place := folder / "federation").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        federation = Provisioned(place, free_port(), sites, python)
        try:
            for site in sites:
                prepared = (folder / "home" / "sites" / site / f"{site}.yaml").read_text()
                (federation.kit(site) / "local" / "fedmed_site.yaml").write_text(prepared)
            federation.start_all()
            meta = federation.finish(federation.submit(folder / "job"))
            assert meta["status"] == "FINISHED:COMPLETED", (meta, federation.said("server", *sites))
        finally:
            federation.close()
