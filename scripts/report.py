#!/usr/bin/env python3
"""Write the report of a run: one HTML page that opens anywhere, and PNGs next to it.

python scripts/report.py simulator_workspace
python scripts/report.py RUN --out DIR
"""

import argparse
import sys

from rich.console import Console

from fedmed.errors import FedMedError
from fedmed.reports.kinds import kind_of
from fedmed.reports.page import write_report
from fedmed.reports.run import read_run


def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 when there is no readable run."""
    parser = argparse.ArgumentParser(description="Write the report of a run.")
    parser.add_argument("run", metavar="RUN", help="simulator workspace, or the server's folder of a job")
    parser.add_argument("--out", metavar="DIR", help="where to write the report (default: RUN/report)")
    options = parser.parse_args(arguments)
    try:
        run, report = read_run(options.run), write_report(options.run, options.out)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    console = Console()
    kind = kind_of(run)
    console.print(kind.table(run))
    for sentence in (kind.summary(run), kind.note(run)):
        console.print(sentence, markup=False, highlight=False)
    print(f"report: {report.html}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
