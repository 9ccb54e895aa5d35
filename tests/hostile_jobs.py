"""Jobs whose configuration tries to read the machine that it comes to, and the bait that they must not get."""

import contextlib
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VARIABLE = "FEDMED_TEST_BAIT"
SITE = "ct_north"  # for which the jobs are


@dataclass
class Bait:
    """What a job is after: a variable of the environment, a file, an address. Each holds a word of its own.

    Attributes:
        folder: where the file lies.
        requested: paths that somebody has requested from the address.
    """

    folder: Path
    words: dict[str, str] = field(default_factory=lambda: {k: f"bait-{k}-7f3a9c" for k in ("env", "file", "url")})
    requested: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.file = self.folder / "bait.txt"
        self.file.write_text(f'token = "{self.words["file"]}"\n')
        bait = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802 - the name that http.server calls
                bait.requested.append(self.path)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(f'token = "{bait.words["url"]}"\n'.encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/bait"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()

    def found_in(self, content: bytes | str) -> list[str]:
        """Words of the bait in some content."""
        content = content.encode() if isinstance(content, str) else content
        return [word for word in self.words.values() if word.encode() in content]

    def assert_unread(self, federation: Any, said: str = "", jobs: tuple[str, ...] = ()) -> None:
        """Search what server and lead hold: files, the server's words, descriptions and downloads of jobs."""
        assert not self.requested, "somebody has asked the address"
        session = federation.session("lead")
        described = [session.list_jobs(detailed=True), *(session.get_job_meta(id) for id in jobs)]
        held = [said, *(json.dumps(one) for one in described)]
        assert not self.found_in("\n".join(held)), held
        results = [federation.download(id) for id in jobs]
        places = [federation.kit("server"), federation.kit("lead"), federation.folder / "home", *results]
        files = [file for place in places for file in place.rglob("*") if file.is_file()]
        assert len(files) > 20
        for file in [*files, federation.folder / "server.log"]:
            with contextlib.suppress(FileNotFoundError):  # the server is done with what it sent
                assert not self.found_in(file.read_bytes()), file


def lines(bait: Bait, what: str) -> tuple[str, str]:
    """Two parts of a configuration in HOCON: one that reads the bait, and the name under which it is then known."""
    reads = {"env": "", "file": f'include file("{bait.file}")', "url": f'include url("{bait.url}")'}
    return reads[what], f"${{{VARIABLE}}}" if what == "env" else "${token}"


def hocon(path: Path, bait: Bait, what: str, into: str, name: str | None = None) -> None:
    """Rewrite a JSON file as HOCON; ``into`` says what happens with what was read, ``{}`` standing for it."""
    read, known = lines(bait, what)
    inner = path.read_text().strip()[1:-1]
    path.unlink()
    target = path.parent / (name or f"{path.stem}.conf")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(f"{read}\n{inner}\n{into.format(known)}\n")


def _client(job: Path) -> Path:
    return next(job.glob("app_supervised/config/config_fed_client.*"))


def _server(job: Path) -> Path:
    return job / "app_server" / "config" / "config_fed_server.json"


IN_ERROR = "x = [1] {}"  # a list and a text do not go together; the error quotes the text
Write = Callable[[Path, Bait], None]
META: dict[str, Write] = {}
SERVER: dict[str, Write] = {}
CLIENT: dict[str, Write] = {}
for kind in ("env", "file", "url"):
    META[f"meta_{kind}"] = lambda job, bait, kind=kind: hocon(
        job / "meta.json", bait, kind, f'name = {{}}\njob_folder_name = "{job.name}"'
    )
    SERVER[f"server_{kind}"] = lambda job, bait, kind=kind: hocon(_server(job), bait, kind, IN_ERROR)
    CLIENT[f"client_{kind}"] = lambda job, bait, kind=kind: hocon(_client(job), bait, kind, IN_ERROR)


def _variables(job: Path, bait: Bait) -> None:
    """Plain JSON, in which NVFlare replaces variables."""
    content = json.loads(_client(job).read_text())
    content["components"].append({"id": "x", "path": f"x.{{${VARIABLE}}}", "args": {}})
    _client(job).write_text(json.dumps(content))


def _settings(job: Path, bait: Bait) -> None:
    """Settings of a participant's own, where NVFlare finds those of a job too."""
    (_client(job).parent / "resources.json").write_text(json.dumps({"allow_log_streaming": True}))
    (_client(job).parent / "comm_config.json").write_text(json.dumps({"comm_driver_path": str(job)}))


def _yaml(job: Path, bait: Bait) -> None:
    _client(job).rename(_client(job).with_suffix(".yml")).write_text(f"x: ${{oc.env:{VARIABLE}}}\n")


def _next_to(name: str) -> Write:
    """The configuration as it should be, and another one that NVFlare could come upon."""
    return lambda job, bait: hocon(_copy(_client(job), name), bait, "url", "", Path(name).name)


def _copy(path: Path, name: str) -> Path:
    target = path.parents[1] / name
    target.parent.mkdir(parents=True, exist_ok=True)
    copy = target.with_name("copy.json")
    copy.write_text(path.read_text())
    return copy


CLIENT |= {
    "client_default": lambda job, bait: hocon(
        _client(job), bait, "env", IN_ERROR, name="config_fed_client.conf.default"
    ),
    "client_deeper": lambda job, bait: hocon(_client(job), bait, "url", IN_ERROR, "deeper/config_fed_client.conf"),
    "client_named_json": lambda job, bait: hocon(_client(job), bait, "env", IN_ERROR, "config_fed_client.json"),
    "client_yaml": _yaml,
    "client_beside": _next_to("config/config_fed_client.conf"),
    "client_capitals": _next_to("config/CONFIG_FED_CLIENT.conf"),
    "client_in_custom": _next_to("custom/config_fed_client.conf"),
    "client_elsewhere": _next_to("other/config_fed_client.conf"),
    "client_variables": _variables,
    "client_settings": _settings,
}
JOBS = {**META, **SERVER, **CLIENT}
