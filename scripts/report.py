#!/usr/bin/env python3
"""Write the report of a run: one HTML page that opens anywhere, and PNGs next to it.

python scripts/report.py simulator_workspace
python scripts/report.py RUN --out DIR
python scripts/report.py RUN --control OTHER
python scripts/report.py RUN --control LEFT_OUT --control ADAPTED
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys

from fedmed.files import private_files
from fedmed.plain_text import print_in_any_terminal


@private_files()
def main(arguments: list[str] | None = None) -> int:
    """Return 0, or 2 when there is no readable run."""
    parser = argparse.ArgumentParser(description="Write the report of a run.")
    parser.add_argument("run", metavar="RUN", help="simulator workspace, or the server's folder of a job")
    parser.add_argument("--out", metavar="DIR", help="where to write the report (default: RUN/report)")
    parser.add_argument(
        "--control",
        metavar="OTHER",
        action="append",
        default=[],
        help="run of the same job without the sites that have no labels; again for one in which they adapt and learn "
        "nothing (default: RUN/control and RUN/control_adapted, if there are such)",
    )
    options = parser.parse_args(arguments)
    # Here and not above: they take seconds to load, for which --help need not wait.
    from rich.console import Console

    from fedmed.errors import FedMedError
    from fedmed.plain_text import in_markup
    from fedmed.reports.control_run import read_with_controls
    from fedmed.reports.gain_words import on_screen
    from fedmed.reports.run_page import write_report
    from fedmed.reports.run_report import report_of

    try:
        run = read_with_controls(options.run, options.control)
        written = write_report(options.run, options.out, options.control)
        report = report_of(run)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    console = Console()
    console.print(*on_screen(run), report.table(run))
    for sentence in (report.summary(run), report.note(run)):
        console.print(in_markup(sentence), highlight=False)
    print(f"report: {written.html}")
    return 0


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
