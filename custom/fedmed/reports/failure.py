"""Why a job failed, in plain words."""

import re
from pathlib import Path

from fedmed.plain_text import in_terminal
from fedmed.reports.live_state import LiveState

ANSI = re.compile(r"\x1b\[[0-9;]*m")
# The last line of a traceback, and a line of NVFlare's log: "time - name - ERROR - message".
EXCEPTION = re.compile(r"^(?:[\w.]+\.)?\w*(?:Error|Exception|RoundFailed|UpdateRefused|Aborted): (?P<what>.+)")
LOGGED = re.compile(r"(?:^| - )(?:ERROR|CRITICAL) - (?P<what>.+)")


def last_error(log: Path, state: LiveState) -> str:
    """Return a site's own message, else the last exception in the log, else the log's last error or last line.

    Args:
        log: everything that NVFlare printed.
        state: the run as far as its files tell.
    """
    if messages := [f"{name}: {site.error}" for name, site in state.sites.items() if site.error]:
        return in_terminal("; ".join(messages))
    text = log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""
    lines = [line.strip() for line in ANSI.sub("", text).splitlines() if line.strip()]
    for pattern in (EXCEPTION, LOGGED):
        found = [match["what"] for line in lines if (match := pattern.search(line))]
        if found:
            return in_terminal(found[-1])
    return in_terminal(lines[-1]) if lines else "NVFlare wrote nothing"
