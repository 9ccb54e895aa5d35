"""A real federation on this machine for tests: kits by fedmed provision, one process a participant, TLS."""

import contextlib
import io
import os
import subprocess
import sys
import time
from pathlib import Path

import matplotlib
import psutil
import yaml
from nvflare.fuel.flare_api.api_spec import InternalError, InvalidJobDefinition
from nvflare.lighter.utils import load_private_key_file, sign_folders

from fedmed.commands.command_line import main

CHECKOUT = Path(__file__).resolve().parents[2]
SITES = {"ct_north": "supervised", "ct_east": "unsupervised", "ct_west": "evaluate"}
SERVER = "localhost"
PEOPLE = {"admin": "project_admin", "lead": "lead", "researcher": "member"}
MARK = "FEDMED_TEST_PARTICIPANT"  # in the environment of every process that belongs to a participant
WAITING = ("nvflare.private.fed.app.server.server_train", "nvflare.private.fed.app.client.client_train")
START_SECONDS = 1800


class Provisioned:
    """A running federation.

    Args:
        folder: everything lies in it, the private home too.
        port: that the server listens to.
        sites: site -> role.
        python: of the environment in which all participants work.
    """

    def __init__(
        self, folder: Path, port: int, sites: dict[str, str] = SITES, python: str | Path = sys.executable
    ) -> None:
        self.folder, self.port, self.sites, self._sessions = folder, port, dict(sites), {}
        self.python = python
        self.out = folder / "federation"
        self.provision(self._project())

    def _project(self) -> Path:
        project = yaml.safe_load((CHECKOUT / "site_configs" / "project.yml").read_text(encoding="utf-8"))
        builders, org = project["builders"], "study_office"
        server = {"name": SERVER, "type": "server", "org": org, "fed_learn_port": self.port}
        project["participants"] = [{**server, "host_names": ["127.0.0.1"], "custom_code": True}]
        for site, role in self.sites.items():
            one = {"name": site, "type": "client", "org": site, "fedmed_role": role, "custom_code": True}
            project["participants"].append(one)
        for person, role in PEOPLE.items():
            project["participants"].append({"name": self.user(person), "type": "admin", "org": org, "role": role})
        path = self.folder / "project.yml"
        path.write_text(yaml.safe_dump({**project, "builders": builders}))
        return path

    def provision(self, project: Path) -> None:
        self.command("provision", project)
        for site in self.sites:
            self.settle(site)

    def command(self, name: str, *arguments: object) -> str:
        """Run ``fedmed provision`` or ``add-site`` for this federation and return what it says.

        In this process where its Python is this one: a process of its own spends seconds on loading PyTorch alone.
        """
        words = [name, *map(str, arguments), "--out", str(self.out)]
        if str(self.python) == sys.executable:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                assert main(words) == 0, said.getvalue()
            return said.getvalue()
        command = [str(self.python), "-m", "fedmed", *words]
        run = subprocess.run(command, capture_output=True, text=True, env=self.environment(""), timeout=1800)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    def settle(self, site: str, **settings: object) -> None:
        """Fill in a site's settings, as its engineer would: here with the tiny demo data."""
        values = {"demo": "chest_ct_tiny", "device": "cpu", "threads": 1, **settings}
        (self.kit(site) / "local" / "fedmed_site.yaml").write_text(yaml.safe_dump(values))

    def environment(self, name: str) -> dict[str, str]:
        home = self.folder / "home"
        home.mkdir(exist_ok=True)
        path = f"{Path(self.python).parent}{os.pathsep}{os.environ['PATH']}"
        of_site = {
            "HOME": str(home),
            "MPLCONFIGDIR": matplotlib.get_cachedir(),
            "PATH": path,
            "OMP_NUM_THREADS": "1",
            MARK: f"{self.out}:{name}",
        }
        return {**{k: v for k, v in os.environ.items() if k != "FEDMED_SITE_CONFIGS"}, **of_site}

    @staticmethod
    def user(person: str) -> str:
        return person if "@" in person else f"{person}@example.org"

    def kit(self, name: str) -> Path:
        """Kit of ``server``, of a site, or of ``admin``, ``lead``, ``researcher``."""
        return self.out / "kits" / {"server": SERVER, **{p: self.user(p) for p in PEOPLE}}.get(name, name)

    def start(self, *names: str) -> None:
        """Start participants, without NVFlare's supervisor, which would restart what a test kills."""
        for name in names:
            with (self.folder / f"{name}.log").open("a") as log:
                command = ["bash", str(self.kit(name) / "startup" / "sub_start.sh"), "--once"]
                streams = {"stdout": log, "stderr": subprocess.STDOUT, "stdin": subprocess.DEVNULL}
                subprocess.Popen(command, env=self.environment(name), start_new_session=True, **streams)

    def start_all(self) -> None:
        """Start everybody and wait until all sites are registered."""
        self.start("server", *self.sites)
        self.wait_for(*self.sites)

    def session(self, person: str = "lead"):
        """Return somebody's session of NVFlare's API, open since its first use; it is closed at the end."""
        from nvflare.fuel.flare_api.flare_api import new_secure_session

        deadline, timeout = time.monotonic() + START_SECONDS, 5.0
        while person not in self._sessions:
            try:
                self._sessions[person] = new_secure_session(self.user(person), str(self.kit(person)), timeout=timeout)
            except Exception:  # noqa: BLE001 - the server may not be up yet
                if time.monotonic() > deadline:
                    raise
                timeout = min(
                    1.5 * timeout, 60.0
                )  # a busy server keeps trying to answer each session that was given up
                time.sleep(0.3)
        return self._sessions[person]

    def wait_for(self, *sites: str) -> None:
        """Wait until these sites are registered."""
        session, deadline = self.session("admin"), time.monotonic() + START_SECONDS
        while missing := set(sites) - {client.name for client in session.get_system_info().client_info}:
            assert time.monotonic() < deadline, f"not registered: {missing}\n{self.said(*missing)}"
            time.sleep(0.3)

    def said(self, *names: str) -> str:
        """End of what participants have printed."""
        logs = [self.folder / f"{name}.log" for name in names]
        return "\n".join(f"{log.name}:\n{log.read_text()[-2000:]}" for log in logs if log.exists())

    def submit(self, job: Path, person: str = "lead") -> str:
        """Submit a job and return its id."""
        return self.session(person).submit_job(str(job))

    def try_to_submit(self, job: Path) -> tuple[str, str]:
        """Sign a hand-made job as the lead and submit it: what is said of a refused one, the id of a taken one."""
        startup = self.kit("lead") / "startup"
        sign_folders(str(job), load_private_key_file(str(startup / "client.key")), str(startup / "client.crt"))
        try:
            return "", self.submit(job)
        except (InvalidJobDefinition, InternalError) as error:
            return str(error), ""

    def finish(self, job_id: str, timeout: float = 1800) -> dict:
        """Wait for the end of a job and return its description."""
        session, deadline = self.session("lead"), time.monotonic() + timeout
        while not self._is_whole(meta := session.get_job_meta(job_id)):
            assert time.monotonic() < deadline, f"{meta}\n{self.said('server', *self.sites)}"
            time.sleep(0.3)
        return meta

    @staticmethod
    def _is_whole(meta: dict) -> bool:
        """Whether a job has ended; of one that could not run, NVFlare writes down who refused it only after that."""
        status = meta["status"]
        return status.startswith("FINISHED") and (status != "FINISHED:FAILED_TO_RUN" or "job_deploy_detail" in meta)

    def download(self, job_id: str, person: str = "lead") -> Path:
        """Download a job's result and return its folder."""
        return Path(self.session(person).download_job_result(job_id))

    def run_folder(self, name: str, job_id: str) -> Path:
        """A participant's own folder of a job."""
        return self.kit(name) / job_id

    def processes(self, name: str = "") -> list[psutil.Process]:
        """Living processes of a participant, jobs included, or of the whole federation."""
        mark, outcome = f"{self.out}:{name}", []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                has = process.environ().get(MARK, "")
                if (has == mark if name else has.startswith(mark)) and process.status() != psutil.STATUS_ZOMBIE:
                    outcome.append(process)
        return outcome

    def job_processes(self, name: str, job_id: str) -> list[psutil.Process]:
        """A participant's processes for one job."""
        return [process for process in self.processes(name) if job_id in process.cmdline()]

    def kill(self, name: str) -> None:
        """A participant vanishes without a word, with all its jobs, as when its machine loses power."""
        self._end(self.processes(name))

    def restart(self, name: str, only_waiting: bool = False) -> None:
        """Kill a participant if it runs, start it and wait until it is registered.

        With ``only_waiting`` its processes for jobs are left to themselves, as when a supervisor restarts what died.
        """
        if only_waiting:
            self._end([process for process in self.processes(name) if set(WAITING) & set(process.cmdline())])
        else:
            self.kill(name)
        self.start(name)
        if name == "server":
            self.close_sessions()
            self.wait_for(*self.sites)
        else:
            self.wait_for(name)

    def close_sessions(self) -> None:
        """Close all sessions of NVFlare's API; an open one keeps this process alive."""
        for session in self._sessions.values():
            with contextlib.suppress(Exception):
                session.close()
        self._sessions.clear()

    def close(self) -> None:
        """End every process of the federation."""
        self.close_sessions()
        self._end(self.processes())

    @staticmethod
    def _end(processes: list[psutil.Process]) -> None:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(processes, timeout=1800)
