"""Requests that a client may send to the label server: one list. Everything else that MONAI Label offers is off.

The list holds what 3D Slicer's and OHIF's modules for MONAI Label, its Python client and the commands of docs/label.md
ask. So off are training, scoring and batches, the model's file, archives of the whole study, pathology, changes of what
is known of an image, and the pages that load scripts of other hosts.
"""

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl

NO_QUERY: frozenset[str] = frozenset()
SMALL = 1 << 20  # bytes of a request's body that holds no image
FORM_BESIDE = 1 << 16  # bytes of a form around its image


@dataclass(frozen=True)
class Route:
    """A method and a path that are open.

    Attributes:
        method: of HTTP.
        path: ``{name}`` stands for one plain name, ``{dicom}`` for a resource of a DICOMweb server, ``{file}`` for a
            file of the viewer.
        query: names that may stand behind the path; None: any, which are not used.
        image: whether the body holds an image; else it is small.
        needs: ``delete`` or ``dicomweb``: open only on a server that was started so.
    """

    method: str
    path: str
    query: frozenset[str] | None = NO_QUERY
    image: bool = False
    needs: str = ""

    def matches(self, path: str) -> bool:
        """True where a decoded path is this one."""
        return _pattern(self.path).fullmatch(path) is not None


def _named(*names: str) -> frozenset[str]:
    return frozenset(names)


ROUTES = (
    Route("GET", "/"),
    Route("GET", "/favicon.ico"),
    Route("GET", "/fedmed-server"),  # the launcher's own question
    Route("GET", "/info/"),
    Route("GET", "/logs/", _named("lines", "html", "text", "refresh")),
    Route("GET", "/train/", _named("check_if_running", "all")),  # viewers ask whether something trains
    # Logins: of MONAI Label's own accounts, or of a server that was started with a token.
    Route("GET", "/auth/"),
    Route("POST", "/auth/token"),
    Route("GET", "/auth/token/valid"),
    Route("POST", "/infer/{name}", _named("image", "session_id", "output"), image=True),
    Route("POST", "/activelearning/{name}"),
    Route("GET", "/datastore/", _named("output")),
    Route("PUT", "/datastore/", _named("image"), image=True),
    Route("GET", "/datastore/image", _named("image")),
    Route("GET", "/datastore/label", _named("label", "tag")),
    Route("PUT", "/datastore/label", _named("image", "tag"), image=True),
    Route("DELETE", "/datastore/image", _named("id"), needs="delete"),
    Route("DELETE", "/datastore/label", _named("id", "tag"), needs="delete"),
    Route("PUT", "/session/", _named("expiry"), image=True),  # without `uncompress`: archives are not unpacked
    Route("GET", "/session/{name}", _named("update_ts", "image")),
    Route("GET", "/ohif/", None, needs="dicomweb"),
    Route("GET", "/ohif/{file}", None, needs="dicomweb"),
    Route("GET", "/proxy/dicom/wado/{dicom}", None, needs="dicomweb"),
    Route("GET", "/proxy/dicom/qido/{dicom}", None, needs="dicomweb"),
)
NEEDED = {"delete": "start it with --allow-delete", "dicomweb": "give a DICOMweb server as STUDIES"}
NAMES = frozenset(("image", "label", "id", "tag", "session_id"))  # of a query; they become parts of paths
PARTS = {
    "{name}": r"[^/\\.\s][^/\\]*",
    "{dicom}": r"(?:studies|series|instances)(?:/[A-Za-z0-9,_-]+(?:\.[A-Za-z0-9,_-]+)*)*",
    "{file}": r"[^\\]*",
}


def _pattern(path: str) -> re.Pattern[str]:
    escaped = re.escape(path).replace(r"\{", "{").replace(r"\}", "}")
    for part, expression in PARTS.items():
        escaped = escaped.replace(part, expression)
    return re.compile(escaped)


def find_route(method: str, path: str, started: frozenset[str]) -> tuple[Route | None, str]:
    """The open route of a request, or None and why it is refused.

    Args:
        method: of HTTP.
        path: decoded.
        started: what the server was started for: ``delete``, ``dicomweb``.
    """
    matching = [route for route in ROUTES if route.method == method and route.matches(path)]
    if not matching or ".." in path.split("/"):
        return None, f"{method} {path} is off on this server: no viewer needs it"
    route = matching[0]
    if route.needs and route.needs not in started:
        return None, f"{method} {path} is off on this server; {NEEDED[route.needs]}"
    return route, ""


def query_fault(route: Route, query: str) -> str:
    """Reason to refuse what stands behind the path; "" for none."""
    if route.query is None:
        return ""
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in route.query:
            return f"'{name}' is off on this server for {route.method} {route.path}"
        if name in NAMES and not is_plain(value, blank=route.method == "POST") and not _is_flag(route, name):
            return f"the {name} {value!r} is not a plain name; use another"
    return ""


def _is_flag(route: Route, name: str) -> bool:
    return route.path.startswith("/session/") and name == "image"


def is_plain(name: str, blank: bool = False) -> bool:
    """True where a name cannot lead out of a folder when it becomes a part of a path."""
    if not name:
        return blank
    return not name.startswith(".") and not any(c in "/\\" or not c.isprintable() for c in name)


def length_fault(route: Route, length: str | None, most: int) -> tuple[int, str] | None:
    """Status and reason for which a body is refused by its stated length.

    Args:
        route: of the request.
        length: what ``Content-Length`` says; None: the request has no body.
        most: bytes of an image.
    """
    if length is None or route.method in ("GET", "DELETE"):  # there is no body, or nothing reads it
        return None
    most = most + FORM_BESIDE if route.image else SMALL
    if not re.fullmatch(r"\d{1,15}", length):
        return 400, "Content-Length is not a number of bytes"
    if int(length) > most:
        return 413, f"{int(length)} bytes are more than the {most} that this server takes here; see --max-upload"
    return None
