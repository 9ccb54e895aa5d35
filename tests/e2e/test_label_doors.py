"""What somebody who reaches the label server's port can do: only what viewers need. MONAI Label itself runs behind.

What a running server answers to those who ask for more is in test_monai_label.py.
"""

import contextlib
import http.server
import json
import os
import re
import shutil
import subprocess
import threading
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from tests.e2e.label_requests import ask

APP = Path(__file__).resolve().parents[2] / "monailabel_app"
VERBS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND")
# All routes that MONAI Label registers, its logins among them, asked with each verb through a door whose server only
# says that it was reached.
WALK = """
import asyncio, itertools, os
os.environ["MONAI_LABEL_AUTH_ENABLE"] = "true"
from fedmed_label.door import Door, Rules
from monailabel.app import app

def registered(routes):
    for route in routes:
        inner = getattr(route, "original_router", None)
        if inner is not None:
            yield from registered(inner.routes)
        elif getattr(route, "methods", None):
            yield from ((method, route.path) for method in route.methods)
        else:
            yield "GET", route.path + "/{path:path}"  # a folder of files

def filled(path):
    for part, value in {"{path:path}": "studies/1.2", "{session_id}": "0a-1"}.items():
        path = path.replace(part, value)
    return path.replace("{model}", "m").replace("{strategy}", "s").replace("{method}", "s")

def reaches(verb, path, started):
    reached = []
    async def behind(scope, receive, send):
        reached.append(scope["path"])
    async def drop(*_):
        return {}
    headers = [(b"host", b"localhost"), (b"content-length", b"10")]
    scope = {"type": "http", "method": verb, "path": path, "query_string": b"", "headers": headers}
    asyncio.run(Door(behind, Rules(started=frozenset(started)))(scope, drop, drop))
    return bool(reached)

known = sorted(set(registered(app.routes)))
result = {"known": known}
for started in ([], ["delete", "dicomweb"]):
    paths = sorted({path for _, path in known})
    pairs = itertools.product(given["verbs"], paths)
    result[",".join(started)] = [f"{v} {p}" for v, p in pairs if reaches(v, filled(p), started)]
import sys
import fedmed_label.web
result["loaded"] = "diskcache" in sys.modules
result["viewer"] = fedmed_label.web.viewer_file("").body.decode()
"""
OPEN = {
    *("GET /favicon.ico", "GET /info/", "GET /logs/", "GET /train/"),
    *("GET /auth/", "POST /auth/token", "GET /auth/token/valid"),
    *("POST /infer/{model}", "POST /activelearning/{strategy}"),
    *("GET /datastore/", "PUT /datastore/", "GET /datastore/image", "GET /datastore/label", "PUT /datastore/label"),
    *("PUT /session/", "GET /session/{session_id}"),
}
WHERE_ASKED_FOR = {
    *("DELETE /datastore/image", "DELETE /datastore/label"),
    *("GET /ohif/{path:path}", "GET /proxy/dicom/wado/{path:path}", "GET /proxy/dicom/qido/{path:path}"),
}


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """One scan."""
    folder = tmp_path_factory.mktemp("studies")
    values = np.random.default_rng(3).normal(-600, 250, (40, 36, 12)).astype(np.int16)
    nib.save(nib.Nifti1Image(values, np.diag([3.0, 3.0, 7.0, 1.0])), folder / "scan.nii.gz")
    return folder


def test_of_all_routes_with_all_verbs_only_those_of_viewers_are_open(label_client, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{APP.parent / 'custom'}{os.pathsep}{APP}")
    walked = label_client("http://unused", WALK, verbs=VERBS)
    known = {" ".join(pair) for pair in walked["known"]}
    assert len(known) > 60 and known >= OPEN | WHERE_ASKED_FOR, "the list is that of MONAI Label 0.8.5"
    assert set(walked[""]) == OPEN
    assert set(walked["delete,dicomweb"]) == OPEN | WHERE_ASKED_FOR
    assert not walked["loaded"], "diskcache runs what lies in its folder"
    links = re.findall(r"""(?:href|src)=["']?([^"' >]+)""", walked["viewer"])
    assert "/ohif/manifest.json" in links and not [link for link in links if not link.startswith("/ohif/")]


@pytest.mark.slow
def test_only_its_own_names_lead_to_a_server_that_is_open_to_the_network(
    label_server, studies, exported_bundle, tmp_path
):
    """To a browser, a page of elsewhere.example is of this origin once that name is made to lead here."""
    token = tmp_path / "token"
    options = ("--host", "0.0.0.0", "--work", str(tmp_path / "work"), "--token", str(token), "--name", "scans.example")
    with label_server(studies, exported_bundle, options=options) as opened:
        secret = {"Authorization": f"Bearer {token.read_text().strip()}"}
        for host, status in (("elsewhere.example", 403), ("scans.example", 200), ("127.0.0.1", 200)):
            assert ask(opened, "GET", "/info/", {"Host": host, **secret})[0] == status
        assert ask(opened, "GET", "/info/")[0] == 401
        assert any("WARNING" in line for line in opened.said)
        assert token.stat().st_mode & 0o777 == 0o600


@contextlib.contextmanager
def dicomweb():
    """A DICOMweb server without studies: its URL."""

    class Empty(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "application/dicom+json")
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"[]")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Empty) as empty:
        threading.Thread(target=empty.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{empty.server_address[1]}/dicom-web"
        empty.shutdown()


def asked_by_pages(log, local):
    """Hosts that a page of the server asked for, of all that a browser noted of its network."""
    text = log.read_text()
    try:
        noted = json.loads(text)
    except ValueError:  # a browser that was ended has not closed the list
        noted = json.loads(text.rstrip().rstrip(",") + "]}")
    names = {number: name for name, number in noted["constants"]["logEventTypes"].items()}
    requested = set()
    for event in noted["events"]:
        values = event.get("params") or {}
        if names[event["type"]] == "URL_REQUEST_START_JOB" and local in str(values.get("initiator")):
            requested.add(values["url"].split("/")[2])
    return requested


@pytest.mark.slow
def test_a_browser_asks_no_other_host(label_server, exported_bundle, tmp_path):
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        pytest.skip("needs the browser chromium, Debian's package of this name")
    with dicomweb() as studies, label_server(studies, exported_bundle) as running:
        for page in ("/", "/logs/", "/ohif/"):
            log = tmp_path / f"{len(page)}.json"
            command = [browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"]
            command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
            command += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]  # its own habits lead nowhere
            command += [f"--user-data-dir={tmp_path / 'profile'}", f"--log-net-log={log}", "--dump-dom"]
            command += ["--virtual-time-budget=20000", f"{running.url}{page}"]
            seen = subprocess.run(command, capture_output=True, text=True, timeout=600).stdout
            local = running.url.removeprefix("http://")
            requested = asked_by_pages(log, local)
            assert requested == {local} if page == "/ohif/" else requested <= {local}, (
                "a viewer asks its own server alone"
            )
            assert {"/": "FedMed label server", "/ohif/": "No studies available"}.get(page, "") in seen
