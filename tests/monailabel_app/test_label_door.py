"""The door before MONAI Label: who may ask, what, how much; and what every answer carries."""

import asyncio
import base64
import json

import pytest
from fedmed_label.door import MOST_UPLOAD, Door, Rules, read_rules
from fedmed_label.pages import own_only
from fedmed_label.tokens import make_token, read_token

from fedmed.errors import FedMedError

TOKEN = "a-secret-of-some-length"
IMAGE = {"content-length": "1000"}


@pytest.fixture
def ask():
    """Return a function: method, path, headers, rules -> status, headers and text of the answer; 200 is MONAI Label."""

    def run(method, target, headers=None, body=b"", **rules):
        path, _, query = target.partition("?")
        given = {"host": "localhost:8000", **(headers or {})}
        raw = [(name.encode(), value.encode()) for name, value in given.items()]
        scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": raw}
        sent = []

        async def behind(scope, receive, send):
            text = f"behind {scope['query_string'].decode()}".encode()
            start = [(b"content-type", b"text/html"), (b"content-security-policy", b"of MONAI Label")]
            await send({"type": "http.response.start", "status": 200, "headers": start})
            await send({"type": "http.response.body", "body": text})

        async def receive():
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message):
            sent.append(message)

        asyncio.run(Door(behind, Rules(**rules))(scope, receive, send))
        return sent[0]["status"], dict(sent[0]["headers"]), sent[1]["body"].decode()

    return run


@pytest.mark.parametrize(
    "target",
    [
        *("GET /info/", "GET /datastore/?output=all", "GET /datastore/image?image=case-1", "GET /favicon.ico"),
        *("GET /datastore/label?label=case-1&tag=final", "GET /train/?check_if_running=true", "GET /auth/"),
        *("POST /infer/covid_ct_segmentation?image=case-1&output=image", "POST /activelearning/uncertainty"),
        *("POST /infer/covid_ct_segmentation?image=&session_id=0a-1", "PUT /datastore/label?image=case-1"),
        *("PUT /datastore/?image=new", "PUT /session/", "GET /session/0a-1"),
    ],
)
def test_what_viewers_ask_reaches_monai_label(ask, target):
    assert ask(*target.split(), IMAGE if target.startswith("P") else None)[0] == 200


@pytest.mark.parametrize(
    "target",
    [
        *("PUT /model/covid", "DELETE /model/covid", "GET /model/covid", "POST /train/covid", "DELETE /train/"),
        *("POST /batch/infer/covid", "DELETE /batch/infer", "POST /scoring/", "GET /datastore/dataset"),
        *("PUT /datastore/label/info", "PUT /datastore/image/info", "PUT /datastore/updatelabelinfo", "POST /reload"),
        *("POST /infer/wsi/covid", "POST /infer/wsi_v2/covid", "GET /docs", "GET /openapi.json", "GET /logs/gpu"),
        *("GET /static/ohif/index.html", "HEAD /datastore/image", "PATCH /info/", "TRACE /", "DELETE /session/0a-1"),
        *("GET /datastore/../x", "GET /session/..", "GET /", "GET /ohif/", "GET /proxy/dicom/qido/studies"),
        *("POST /proxy/dicom/stow/studies", "DELETE /datastore/label?id=a&tag=final", "DELETE /datastore/image?id=a"),
    ],
)
def test_everything_else_does_not(ask, target):
    status, _, text = ask(*target.split(), IMAGE)
    assert "behind" not in text and (status == 403 or target == "GET /")


def test_deleting_is_open_where_it_was_asked_for(ask):
    assert ask("DELETE", "/datastore/label?id=a&tag=final", started=frozenset({"delete"}))[0] == 200
    assert ask("DELETE", "/datastore/image?id=a", started=frozenset({"delete"}))[0] == 200
    assert "--allow-delete" in ask("DELETE", "/datastore/label?id=a&tag=final")[2]


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("GET /ohif/", 200),
        ("GET /ohif/app.bundle.css", 200),
        ("GET /proxy/dicom/qido/studies?limit=10", 200),
        ("GET /proxy/dicom/wado/studies/1.2.3/series/4.5/metadata", 200),
        ("GET /proxy/dicom/wado/../../tools/execute-script", 403),
        ("GET /proxy/dicom/wado/studies/../../instances", 403),
        ("GET /proxy/dicom/wado/studies/%2e%2e/instances", 403),
        ("GET /proxy/dicom/instances", 403),
        ("POST /proxy/dicom/wado/tools/execute-script", 403),
        ("POST /proxy/dicom/stow/studies", 403),
    ],
)
def test_of_a_dicom_server_only_its_series_are_read(ask, target, status):
    assert ask(*target.split(), started=frozenset({"dicomweb"}))[0] == status


@pytest.mark.parametrize(
    "target",
    [
        *("PUT /session/?uncompress=true", "PUT /session/?uncompress=false", "PUT /session/?expiry=1&uncompress=1"),
        *("PUT /datastore/?image=../x", "PUT /datastore/?image=/tmp/x", "PUT /datastore/label?image=a&tag=.."),
        *("PUT /datastore/label?image=a&image=..%2Fb", "GET /datastore/image?image=..%2F..%2Fetc%2Fx"),
        *("POST /infer/m?image=%2Fetc%2Fpasswd", "POST /infer/m?session_id=..%2F..", "GET /datastore/image?image="),
        "GET /datastore/label?label=a%5C..&tag=final",
    ],
)
def test_archives_and_names_that_are_paths_are_refused(ask, target):
    status, _, text = ask(*target.split(), IMAGE if target.startswith("P") else None)
    assert status == 422 and ("is not a plain name" in text or "'uncompress' is off" in text)


@pytest.mark.parametrize(
    ("target", "headers", "status"),
    [
        ("PUT /datastore/?image=a", {"content-length": str(MOST_UPLOAD * 2)}, 413),
        ("PUT /datastore/?image=a", {"content-length": "9" * 16}, 400),
        ("PUT /datastore/?image=a", {"content-length": "-1"}, 400),
        ("POST /infer/m?image=a", {}, 200),
        ("PUT /datastore/?image=a", {"transfer-encoding": "chunked"}, 411),
        ("POST /activelearning/random", {"content-length": str(2 << 20)}, 413),
    ],
)
def test_how_much_is_said_before_it_is_sent(ask, target, headers, status):
    assert ask(*target.split(), headers)[0] == status


def test_an_upload_leaves_the_disk_some_space(ask, monkeypatch):
    from fedmed_label import door

    monkeypatch.setattr(door.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 300 << 20}))
    assert ask("PUT", "/datastore/?image=a", {"content-length": str(20 << 20)})[0] == 507
    assert ask("PUT", "/datastore/?image=a", IMAGE)[0] == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "elsewhere.example"}, 403),
        ({"host": "elsewhere.example:8000"}, 403),
        ({"host": "127.0.0.1.elsewhere.example"}, 403),
        ({"host": "localhost:8000"}, 200),
        ({"host": "[::1]:8000"}, 200),
        ({"host": "["}, 403),
        ({"origin": "http://elsewhere.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:9000"}, 403),
        ({"origin": "http://localhost:8000"}, 200),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "same-site", "sec-fetch-mode": "no-cors"}, 403),
        ({"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}, 200),
        ({"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"}, 200),
    ],
)
def test_pages_from_elsewhere_are_refused(ask, headers, status):
    assert ask("GET", "/info/", headers)[0] == status


def test_pages_that_were_allowed_may_ask_before_they_ask(ask):
    page = {"origin": "http://viewer.example"}
    preflight = {**page, "access-control-request-method": "POST"}
    allowed = frozenset({"http://viewer.example"})
    assert ask("GET", "/info/", page, origins=allowed)[0] == 200
    assert ask("OPTIONS", "/infer/m", preflight, origins=allowed, token=TOKEN)[0] == 200
    assert ask("OPTIONS", "/reload", preflight, origins=allowed)[0] == 403
    assert ask("OPTIONS", "/infer/m", preflight)[0] == 403


def login(password):
    return {"authorization": "Basic " + base64.b64encode(f"me:{password}".encode()).decode()}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": f"Digest {TOKEN}"}, 401),
        ({"authorization": "Basic !"}, 401),
        (login("wrong"), 401),
        (login(TOKEN), 200),
        ({"authorization": f"bearer {TOKEN}"}, 200),
    ],
)
def test_a_server_with_a_token_answers_those_who_bring_it(ask, headers, status):
    code, answered, text = ask("GET", "/info/", headers, token=TOKEN)
    assert code == status and TOKEN not in text
    assert (b"www-authenticate" in answered) == (status == 401)
    assert ask("GET", "/fedmed-server", headers, token=TOKEN)[0] == 200
    assert ask("GET", "/reload", headers, token=TOKEN)[0] == 403


def test_slicers_login_window_works_with_the_token(ask):
    assert json.loads(ask("GET", "/auth/", token=TOKEN)[2])["enabled"] is True
    form = f"username=me&password={TOKEN}&grant_type=password".encode()
    given = json.loads(ask("POST", "/auth/token", {"content-length": str(len(form))}, form, token=TOKEN)[2])
    headers = {"authorization": f"{given['token_type']} {given['access_token']}"}
    assert ask("GET", "/auth/token/valid", headers, token=TOKEN)[0] == 200
    assert ask("POST", "/auth/token", {}, b"username=me&password=guess", token=TOKEN)[0] == 401
    assert ask("POST", "/auth/token", {}, b"password=" + b"x" * (1 << 15), token=TOKEN)[0] == 401


@pytest.mark.parametrize("target", ["/", "/info/", "/logs/", "/reload", "/datastore/image?image=.."])
def test_no_answer_may_load_anything_from_elsewhere(ask, target):
    _, headers, _ = ask("GET", target)
    assert headers[b"content-security-policy"].startswith(b"default-src 'none'; img-src 'self'; ")
    assert headers[b"x-content-type-options"] == b"nosniff" and headers[b"cache-control"] == b"no-store"


def test_ohif_may_load_from_its_own_server_alone(ask):
    _, headers, _ = ask("GET", "/ohif/", started=frozenset({"dicomweb"}))
    policy = headers[b"content-security-policy"].decode()
    assert "http" not in policy and "*" not in policy and "connect-src 'self'" in policy


def test_the_servers_own_page_lists_what_is_open_and_runs_nothing(ask):
    status, _, page = ask("GET", "/")
    assert status == 200 and "/infer/{name}" in page and "DELETE" not in page and "/ohif/" not in page
    assert not any(text in page for text in ("<script", "http:", "https:", "src=", "href="))


def test_logs_come_as_text(ask):
    assert ask("GET", "/logs/?lines=100&html=true&refresh=3")[2] == "behind lines=300&text=true"


def test_a_page_loses_what_it_loads_from_other_hosts():
    page = (
        '<link rel="preconnect" href="https://fonts.gstatic.com"/><link href="/ohif/app.css">'
        "<script src='//cdn.example/a.js'></script><script>own()</script><link rel=x href=http://a.example>"
    )
    assert own_only(page) == '<link href="/ohif/app.css"><script>own()</script>'


def test_rules_come_from_the_launcher_and_are_closed_without_one(tmp_path):
    (token := tmp_path / "token").write_text(TOKEN)
    token.chmod(0o600)
    given = {"FEDMED_LABEL_HOSTS": "Pc-1,127.0.0.1", "FEDMED_LABEL_TOKEN": str(token), "FEDMED_LABEL_UPLOAD": "7"}
    rules = read_rules(given, ["http://viewer.example/"])
    assert (rules.hosts, rules.token, rules.upload) == ({"pc-1", "127.0.0.1"}, TOKEN, 7)
    assert rules.origins == {"http://viewer.example"} and TOKEN not in repr(rules)
    assert read_rules({}, []) == Rules()
    token.chmod(0o640)
    with pytest.raises(FedMedError, match="others than you"):
        read_rules(given, [])


def test_a_token_is_made_once_and_only_its_user_can_read_it(tmp_path):
    path = make_token(tmp_path / "new" / "token")
    first = read_token(path)
    assert path.stat().st_mode & 0o777 == 0o600 and len(first) >= 32
    assert read_token(make_token(path)) == first
    assert read_token(make_token(tmp_path / "other")) != first


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [("a" * 30, 0o604, "others than you"), ("short", 0o600, "fewer than"), ("ä" * 30, 0o600, "not readable")],
)
def test_what_is_no_secret_is_refused(tmp_path, content, mode, words):
    (path := tmp_path / "token").write_text(content)
    path.chmod(mode)
    with pytest.raises(FedMedError, match=words):
        make_token(path)
