"""MONAI Label for tests: its environment, servers, and clients that run in its environment."""

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import subprocess
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fedmed.bundles.digests import DIGESTS, whole_digest

CHECKOUT = Path(__file__).resolve().parents[2]
LABEL = CHECKOUT / "scripts" / "label.sh"
READY = "End it with"  # the launcher's last words once the server answers
READY_SECONDS = 1800
CLIENT = """
import json, sys
from monailabel.client import MONAILabelClient
client = MONAILabelClient(sys.argv[1])
given = json.loads(sys.argv[2])
{script}
print(json.dumps(result))
"""
# Python runs a module of this name first, in every process of the simulator.
TAP = """
import os, socket, threading

lock, target = threading.Lock(), os.path.join(os.environ["TAP"], f"{os.getpid()}.bin")

def tapped(send):
    def tap(self, data, *rest):
        with lock, open(target, "ab") as file:
            file.write(data)
        return send(self, data, *rest)
    return tap

for name in ("send", "sendall"):
    setattr(socket.socket, name, tapped(getattr(socket.socket, name)))
"""


@dataclass
class LabelServer:
    """A server that is ready: its address, its launcher's process, and what that has printed."""

    url: str
    process: subprocess.Popen
    said: list[str]

    def stop(self, number: int = signal.SIGINT) -> int:
        """Send the launcher a signal and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(600)


def label_place() -> Path:
    """Where scripts/label.sh keeps MONAI Label's environment."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("FEDMED_LABEL_ENV") or Path(cache) / "fedmed" / "label-env")


@pytest.fixture(scope="session")
def label_env():
    """Folder of MONAI Label's environment: used when it is there, made when not, which takes some minutes."""
    setup = subprocess.run([str(LABEL), "--setup"], capture_output=True, text=True)
    if "(from versions: none)" in setup.stderr and not os.environ.get("CI"):
        pytest.skip("MONAI Label's environment is missing and there is no package index to make it from")
    assert setup.returncode == 0, setup.stderr[-3000:]
    return label_place()


@pytest.fixture(scope="session")
def label_server(label_env, fedmed_home):
    """Return a context manager: studies, bundles and options of scripts/label.sh -> a LabelServer."""

    @contextlib.contextmanager
    def serve(studies: Path | str, *bundles: Path, options: tuple[str, ...] = ()) -> Iterator[LabelServer]:
        """Bundles that FedMed did not export are trusted."""
        port, others = free_port(), [bundle for bundle in bundles if not (bundle / DIGESTS).is_file()]
        trust = [word for bundle in others for word in ("--trust", whole_digest(bundle))]
        given = [str(studies), *map(str, bundles), *trust, *options]
        command = [str(LABEL), *given, "--port", str(port), "--device", "cpu"]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ)
        )
        server = LabelServer(f"http://127.0.0.1:{port}", process, [])
        ready = threading.Event()
        reader = threading.Thread(target=_read, args=(server, ready), daemon=True)
        reader.start()
        try:
            ready.wait(READY_SECONDS)
            assert server.said and server.said[-1].startswith(READY), "".join(server.said)
            yield server
            assert server.stop() in (0, -signal.SIGKILL), "it ends well when asked to, unless a test has killed it"
        finally:
            server.stop()
            reader.join(10)

    return serve


def _read(server: LabelServer, ready: threading.Event) -> None:
    for line in server.process.stdout:
        server.said.append(line)
        if line.startswith(READY):
            ready.set()
    ready.set()  # it ended: waiting longer helps nobody


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@pytest.fixture(scope="session")
def label_client(label_env):
    """Return a function that runs a client script in MONAI Label's environment.

    The script finds ``client`` (a MONAILabelClient) and ``given`` (the keyword arguments), and sets ``result``, which
    is returned.
    """

    def run(url: str, script: str, **given: Any) -> Any:
        code = CLIENT.format(script=textwrap.dedent(script))
        command = [str(label_env / "bin" / "python"), "-c", code, url, json.dumps(given)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.fixture(scope="session")
def new_federation(tmp_path_factory, fedmed_home):
    """Return a function: site -> role -> a provisioned federation that is not started; ended with the session."""
    spec = importlib.util.spec_from_file_location("provisioned", Path(__file__).with_name("provisioned.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = []

    def new(sites: dict[str, str] = module.SITES) -> Any:
        made.append(module.Provisioned(tmp_path_factory.mktemp("federation"), free_port(), sites))
        return made[-1]

    yield new
    for federation in made:
        federation.close()


@pytest.fixture(scope="module")
def start_federation(new_federation):
    """Return a function: sites' roles, participant -> parts that its kit lacks, participant -> variables of its
    environment, further entries of those kits -> a running federation, which ends with the module."""
    running = []

    def start(sites: dict[str, str], without: dict, environment: dict | None = None, **resources: Any) -> Any:
        running.append(federation := new_federation(sites))
        for name, parts in without.items():
            path = federation.kit(name) / "local" / "resources.json.default"
            content = json.loads(path.read_text()) | resources
            content["components"] = [part for part in content["components"] if part["id"] not in parts]
            path.write_text(json.dumps(content))
        usual = federation.environment
        federation.environment = lambda name: usual(name) | (environment or {}).get(name, {})
        federation.start_all()
        return federation

    yield start
    for federation in running:
        federation.close()


@pytest.fixture(scope="module")
def federation(new_federation):
    """A running federation: server, ct_north (labels), ct_east (none), ct_west (only scored); see provisioned.py."""
    running = new_federation()
    running.start_all()
    yield running
    running.close()  # waiting for jobs, its processes would take their part of the other tests' time


@pytest.fixture(scope="module")
def bait(tmp_path_factory, hostile_jobs):
    """What hostile jobs are after: see tests/hostile_jobs.py."""
    placed = hostile_jobs.Bait(tmp_path_factory.mktemp("bait"))
    yield placed
    placed.close()


@pytest.fixture(scope="module")
def bait_variables(bait, hostile_jobs):
    """Participant -> variables of its environment, for the server and the site that hostile jobs are for."""
    names = ("server", hostile_jobs.SITE)
    return {name: {hostile_jobs.VARIABLE: f"{bait.words['env']}-at-{name}"} for name in names}


@pytest.fixture
def submit_hostile(write_tiny_job, bait, hostile_jobs, tmp_path):
    """Return a function: federation, hostile job's name -> what was said, and the job's id where it was taken."""
    good = write_tiny_job(tmp_path / "good", "job", sites={hostile_jobs.SITE: "supervised"}, custom=False)

    def submit(federation: Any, name: str) -> tuple[str, str]:
        job = shutil.copytree(good, tmp_path / name)
        hostile_jobs.JOBS[name](job, bait)
        return federation.try_to_submit(job)

    return submit


@pytest.fixture(scope="session")
def tap():
    """Return a function: folder -> environment in which every process writes what it sends to ``folder/capture``."""

    def tap(folder: Path) -> dict[str, str]:
        for name in ("tap", "capture"):
            (folder / name).mkdir()
        (folder / "tap" / "sitecustomize.py").write_text(TAP)
        path = os.pathsep.join([str(folder / "tap"), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**os.environ, "PYTHONPATH": path, "TAP": str(folder / "capture")}

    return tap
