"""Requests that tests send to a label server, without its own client."""

import http.client
import io
import tarfile
import uuid


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
