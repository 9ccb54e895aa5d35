#!/usr/bin/env python3
"""Answer at the path of every script that is a command of ``fedmed`` now; it goes with version 0.3."""

import shlex
import sys
from pathlib import Path
from shutil import which

HERE = Path(__file__).resolve().parent

NOW = {
    "adapt_bundle": "adapt",
    "add_site": "add-site",
    "check_site": "site check",
    "export_bundle": "export",
    "infer_dicom": "infer",
    "ledger": "site ledger",
    "make_demo_data": "prepare demo",
    "package_job": "study package",
    "prepare_ct": "prepare ct",
    "prepare_cxr": "prepare cxr",
    "prepare_lidc": "research lidc",
    "prepare_video": "prepare video",
    "purge_cache": "site purge",
    "report": "report",
    "reproduce": "research run",
    "resume": "study resume",
    "simulate": "simulate",
    "use_labels": "label use",
    "view_case": "view case",
    "view_clients": "view clients",
    "view_phases": "view phases",
    "view_video": "view video",
}

if __name__ == "__main__":
    words = sys.argv[1:]
    command = NOW[Path(sys.argv[0]).stem]
    if command == "study package" and words[:1] == ["--init"]:
        command, words = "study init", words[1:]
    hint = "" if which("fedmed") else f" (first: source {HERE.parent / '.venv/bin/activate'})"
    sys.exit(f"{sys.argv[0]} is a command now: {shlex.join(['fedmed', *command.split(), *words])}{hint}")
