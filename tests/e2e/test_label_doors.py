"""What somebody who reaches the label server's port can do: only what viewers need. MONAI Label itself runs behind."""

import contextlib
import gzip
import http.client
import http.server
import io
import json
import os
import re
import shutil
import subprocess
import tarfile
import threading
import uuid
from pathlib import Path

import nibabel as nib
import numpy as np
import psutil
import pytest

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
# What 3D Slicer does with an image that the server does not have, and a reader's label.
SLICER = """
info = client.info()
session = client.create_session(given["image"])["session_id"]
known = client.get_session(session)
of_session = client.infer(given["model"], "", {}, session_id=session)[0]
client.upload_image(given["image"], "sent")
label = client.infer(given["model"], "sent", {})[0]
saved = client.save_label("sent", label, params={"label_info": []})
mine = client.download_label("sent", "final")
result = [sorted(info["models"]), bool(known), of_session, label, mine, client.train_status(True)]
"""


@pytest.fixture(scope="module")
def studies(tmp_path_factory):
    """One scan."""
    folder = tmp_path_factory.mktemp("studies")
    values = np.random.default_rng(3).normal(-600, 250, (40, 36, 12)).astype(np.int16)
    nib.save(nib.Nifti1Image(values, np.diag([3.0, 3.0, 7.0, 1.0])), folder / "scan.nii.gz")
    return folder


@pytest.fixture(scope="module")
def server(label_server, studies, exported_bundle):
    with label_server(studies, exported_bundle) as running:
        yield running


@pytest.fixture(scope="module")
def hospital_image(tmp_path_factory):
    """An image elsewhere on the server's machine, which its user may write."""
    path = tmp_path_factory.mktemp("hospital") / "patient.nii.gz"
    path.write_bytes(b"of a patient")
    return path


def ask(server, method, target, headers=None, body=None):
    """Status, headers and text of the answer."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=600)
    try:
        connection.request(method, target, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode("utf-8", "replace")
    finally:
        connection.close()


def send(server, method, target, field, name, content):
    """Send a file as a form does."""
    limit = uuid.uuid4().hex
    head = f'--{limit}\r\nContent-Disposition: form-data; name="{field}"; filename="{name}"\r\n\r\n'
    body = head.encode() + content + f"\r\n--{limit}--\r\n".encode()
    return ask(server, method, target, {"Content-Type": f"multipart/form-data; boundary={limit}"}, body)


def sent_files(fedmed_home):
    """What lies in the folders for what clients send; the settings that MONAI Label itself keeps there are no image."""
    places = [path for name in ("tmp", "sessions") for path in (fedmed_home / "label").glob(f"server-*/{name}")]
    return [path for place in places for path in place.rglob("*") if path.is_file() and path.suffix != ".json"]


def archive(kind, victim):
    """A tar with a member that leads to a file outside the folder in which it is unpacked."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        name = {"relative": "../" * 12 + str(victim).lstrip("/"), "absolute": str(victim), "link": "out/x"}[kind]
        if kind == "link":
            member = tarfile.TarInfo("out")
            member.type, member.linkname = tarfile.SYMTYPE, str(victim.parent)
            tar.addfile(member)
            name = f"out/{victim.name}"
        member = tarfile.TarInfo(name)
        member.size = 7
        tar.addfile(member, io.BytesIO(b"changed"))
    return stream.getvalue()


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


@pytest.mark.parametrize("kind", ["relative", "absolute", "link"])
@pytest.mark.parametrize("query", ["?uncompress=true", "?uncompress=1&expiry=9", ""])
def test_an_archive_writes_nothing_anywhere(server, hospital_image, fedmed_home, kind, query):
    status, _, text = send(server, "PUT", f"/session/{query}", "files", "a.tar", archive(kind, hospital_image))
    assert status == 422 and ("'uncompress' is off" in text or "files are not taken" in text)
    assert hospital_image.read_bytes() == b"of a patient" and not sent_files(fedmed_home)


@pytest.mark.parametrize(
    ("method", "target", "field"),
    [
        ("PUT", "/datastore/?image=zeros", "file"),
        ("PUT", "/session/", "files"),
        ("PUT", "/datastore/label?image=scan&tag=final", "label"),
        ("POST", "/infer/covid_ct_segmentation", "file"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_zeros_are_no_image_and_are_not_kept(server, fedmed_home, method, target, field, packed):
    zeros = bytes(4 << 20)
    content = gzip.compress(zeros) if packed else zeros
    status, _, text = send(server, method, target, field, "a.nii.gz", content)
    assert status == 422 and "save it again" in text
    assert list(json.loads(ask(server, "GET", "/datastore/?output=all")[2])["objects"]) == ["scan"]
    assert not sent_files(fedmed_home)


def test_an_image_of_the_studies_is_judged_by_its_header_before_it_is_read(server, studies):
    header = nib.Nifti1Header()
    header.set_data_dtype(np.int16)
    header.set_data_shape((1900, 1900, 1900))
    header["magic"], header["vox_offset"] = b"n+1", 352
    scan = studies / "scan.nii.gz"
    kept = scan.read_bytes()
    try:
        scan.write_bytes(gzip.compress(header.binaryblock + bytes(4)))
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _, text = ask(server, "POST", "/infer/covid_ct_segmentation?image=scan", headers, "params={}")
    finally:
        scan.write_bytes(kept)
    assert status == 422 and "does not fit into memory: 1900×1900×1900" in text


def test_a_request_names_no_file_of_the_server(server, hospital_image):
    for values in ({"image": str(hospital_image)}, {"image": [str(hospital_image)]}, {"label": str(hospital_image)}):
        body = f"params={json.dumps(values)}"
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _, text = ask(server, "POST", "/infer/covid_ct_segmentation?image=scan", headers, body)
        assert status == 422 and "of a patient" not in text


def test_more_than_is_taken_is_refused_before_it_is_sent(server):
    status, _, text = ask(server, "PUT", "/datastore/?image=a", {"Content-Length": str(2 << 30)})
    assert status == 413 and "--max-upload" in text


def test_what_slicer_does_works(server, label_client, studies, exported_bundle):
    given = {"image": str(studies / "scan.nii.gz"), "model": exported_bundle.name}
    models, session, *labels, training = label_client(server.url, SLICER, **given)
    assert models == [exported_bundle.name] and session and not training
    values = [np.asanyarray(nib.load(label).dataobj) for label in labels]
    assert np.array_equal(values[0], values[1]) and np.array_equal(values[1], values[2])
    assert ask(server, "DELETE", "/datastore/label?id=sent&tag=final")[0] == 403
    assert Path(labels[2]).is_file() and ask(server, "GET", "/datastore/label?label=sent&tag=final")[0] == 200


@pytest.mark.parametrize("page", ["/", "/logs/", "/logs/?html=true&refresh=3", "/infer/none"])
def test_pages_load_nothing_from_elsewhere(server, page):
    status, headers, text = ask(server, "GET", page)
    assert headers["Content-Security-Policy"].startswith("default-src 'none'; img-src 'self'; ")
    assert headers["X-Content-Type-Options"] == "nosniff" and "<script" not in text
    assert status == (403 if page == "/infer/none" else 200)
    assert headers["Content-Type"].startswith("text/html" if page == "/" else ("text/plain", "application/json"))


def test_a_server_ends_when_its_launcher_is_killed_and_the_next_one_removes_its_folder(
    server, fedmed_home, monkeypatch
):
    """The last test that asks this server: it is gone afterwards."""
    started = psutil.Process(server.process.pid).children(recursive=True)
    (folder,) = (fedmed_home / "label").glob("server-*")
    server.process.kill()
    assert started and not psutil.wait_procs(started, timeout=1800)[1]
    assert folder.is_dir(), "nobody was left to remove it"
    os.utime(folder, (0, 0))  # a young one may be another launcher's, which does not hold it yet
    monkeypatch.syspath_prepend(APP)
    from fedmed_label.instance import instance

    with instance([], stock=False) as of_the_next:
        assert not folder.exists() and of_the_next.is_dir()


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
