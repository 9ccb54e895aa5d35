"""Answers to a browser: no script, style or font of another host, and headers that keep it so."""

import html
import re

from fedmed_label.routes import ROUTES

_BASE = "base-uri 'none'; form-action 'none'; object-src 'none'; frame-ancestors 'none'"
CLOSED = f"default-src 'none'; img-src 'self'; {_BASE}"
# OHIF compiles its decoders in the browser and runs them in workers made of blobs; all of it from this server.
VIEWER = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; connect-src 'self' data: blob:; worker-src 'self' blob:; "
    f"manifest-src 'self'; media-src 'self' blob:; {_BASE}"
)
HEADERS = {
    b"x-content-type-options": b"nosniff",
    b"referrer-policy": b"no-referrer",
    b"x-dns-prefetch-control": b"off",
    b"cross-origin-resource-policy": b"same-origin",
}
_ELSEWHERE = re.compile(r"""<(?:link|script)\b[^>]*\b(?:href|src)\s*=\s*["']?(?:https?:)?//[^>]*>(?:\s*</script>)?""")


def headers_for(path: str) -> dict[bytes, bytes]:
    """The headers that every answer to a path has, whatever MONAI Label sets."""
    if path.startswith("/ohif/"):
        return {b"content-security-policy": VIEWER.encode(), **HEADERS}
    return {b"content-security-policy": CLOSED.encode(), b"cache-control": b"no-store", **HEADERS}  # of patients


def own_only(page: str) -> str:
    """A page without its links to and scripts of other hosts: a browser connects to some before it asks the policy."""
    return _ELSEWHERE.sub("", page)


def overview(started: frozenset[str]) -> str:
    """The page at ``/``: what is open here, without a script."""
    rows = [
        f"<tr><td>{route.method}<td>{html.escape(route.path)}<td>{html.escape(', '.join(sorted(route.query or ())))}"
        for route in ROUTES
        if not route.needs or route.needs in started
    ]
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>FedMed label server</title>'
        "<h1>FedMed label server</h1><p>Open it in 3D Slicer or OHIF; docs/label.md says how. What programs may ask:"
        "<table><tr><th>Method<th>Path<th>Query" + "".join(rows) + "</table></html>\n"
    )
