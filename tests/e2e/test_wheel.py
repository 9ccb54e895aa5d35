"""What a hospital installs: the wheel alone, without synthetic hospitals and research, trains on its own files."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
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


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Folder with the wheel's content, built from the package's own files."""
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(CHECKOUT / name, source)
    shutil.copytree(CHECKOUT / "custom", source / "custom", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    pip = [sys.executable, "-m", "pip", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--no-build-isolation", "-w", source / "made", source], check=True)
    (wheel,) = (source / "made").glob("fedmed-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", out, wheel], check=True)
    return out


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
