"""``fedmed report``."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedmed.commands.options import AsJson
from fedmed.files import private_files


@private_files()
def report(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Simulator's workspace, or the server's folder of a job.")],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to write the report. Default: RUN/report.")
    ] = None,
    control: Annotated[
        list[str],
        typer.Option(
            metavar="OTHER",
            help="Run of the same job without the sites that have no labels; again for one in which they adapt and "
            "learn nothing. Default: RUN/control and RUN/control_adapted, if there are such.",
        ),
    ] = [],
    as_json: AsJson = False,
) -> None:
    """Write the report of a run: one HTML page that opens anywhere, and PNGs next to it.

    fedmed report simulator_workspace
    fedmed report RUN --out DIR
    fedmed report RUN --control LEFT_OUT --control ADAPTED
    """
    from rich.console import Console

    from fedmed.plain_text import every_text, in_markup
    from fedmed.reports import alone
    from fedmed.reports.control_run import read_with_controls
    from fedmed.reports.gain_words import on_screen
    from fedmed.reports.run_page import write_report
    from fedmed.reports.run_report import report_of

    read = read_with_controls(run, control)
    written, shown = write_report(run, out, control), report_of(read)
    if as_json:
        result = {"page": str(written.html), "summary": shown.summary(read), "result": every_text(read.result)}
        print(json.dumps(result, indent=2))
        return
    console = Console()
    console.print(*alone.on_screen(read), *on_screen(read), shown.table(read))
    for sentence in (shown.summary(read), shown.note(read)):
        console.print(in_markup(sentence), highlight=False)
    print(f"report: {written.html}")
