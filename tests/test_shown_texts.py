"""Names and warnings of peers and files, everywhere that they are shown or written."""

import csv
import io
import json

import pytest
from markdown_it import MarkdownIt
from rich.console import Console

from fedmed.data.prepare.console import print_table
from fedmed.data.prepare.report import Prepared, page, table
from fedmed.errors import FedMedError
from fedmed.reports import plots
from fedmed.reports.live import Follower, LiveState, last_error, render
from fedmed.reports.run_files import read_lines, read_record, read_table
from fedmed.reports.sheet import Sheet, SheetTable, show
from fedmed.reports.site_rows import screen_table
from fedmed.training.case_recorder import write_table
from research.runner.words_of_tables import csv_bytes

EVIL = "a\x1b[2J\n\u202e[red]b[/red]"
SHOWN = "a\\x1b[2J\\n\\u202e[red]b[/red]"  # on one line, and rich's markup is no markup
FORMULA = '=HYPERLINK("http://evil.example")'
LINK = "[a](javascript:alert(1))<img src=x onerror=alert(1)>|x"


def printed(*what) -> str:
    console = Console(file=io.StringIO(), width=300, force_terminal=False)
    console.print(*what)
    return console.file.getvalue()


def test_what_a_run_left_is_read_without_control_characters(tmp_path):
    line = {"round": 0, "warnings": [{"site": EVIL, "message": EVIL}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(line) + "\n")
    (tmp_path / "run.json").write_text(json.dumps({"sites": {EVIL: {"role": EVIL}}}))
    (tmp_path / "cases.csv").write_text(f'case,dice\n"{EVIL}",0.5\n')

    assert read_lines(tmp_path / "a.jsonl")[0]["warnings"] == [{"site": SHOWN, "message": SHOWN}]
    assert read_record(tmp_path / "run.json") == {"sites": {SHOWN: {"role": SHOWN}}}
    assert read_table(tmp_path / "cases.csv")["case"].tolist() == [SHOWN]


def test_a_nesting_that_no_reader_survives_is_a_damaged_file(tmp_path):
    (tmp_path / "run.json").write_text('{"a":' + "[" * 100_000)
    (tmp_path / "a.jsonl").write_text('{"a":' + "[" * 100_000 + "\n{}\n")

    for read, name in ((read_record, "run.json"), (read_lines, "a.jsonl")):
        with pytest.raises(FedMedError, match=name):
            read(tmp_path / name)


def test_the_live_display_and_its_plain_lines_show_what_a_site_sent_as_text(tmp_path):
    follower = Follower(tmp_path, "job", ["site"])
    folder = tmp_path / "server" / "simulate_job" / "fedmed"
    folder.mkdir(parents=True)
    line = {"round": 0, "refused": [{"site": EVIL, "reason": EVIL}], "warnings": [{"site": EVIL, "message": EVIL}]}
    (folder / "rounds.jsonl").write_text(json.dumps(line) + "\n")

    said = "\n".join(follower.poll()) + printed(render(follower.state, 0.0))

    assert said.count(SHOWN) >= 4
    assert not {"\x1b", "\u202e"} & set(said)


def test_tables_and_sheets_of_a_terminal_show_names_as_text():
    sheet = Sheet(EVIL, EVIL, EVIL, [], [SheetTable(EVIL, "", [EVIL], [[EVIL]])], [EVIL], [(EVIL, [EVIL])])
    console = Console(file=io.StringIO(), width=300, force_terminal=False)
    show(sheet, console)
    print_table(console, [(EVIL,), (EVIL,)], EVIL)
    console.print(screen_table(EVIL, [{EVIL: EVIL}], [EVIL]))

    text = console.file.getvalue()
    assert text.count(SHOWN) == 13  # a cell of the last may have lines
    assert not {"\x1b", "\u202e"} & set(text)


def test_why_a_job_failed_is_told_on_one_line(tmp_path):
    log = tmp_path / "log"
    log.write_text("2026 - server - ERROR - the name \x1b]0;x\x07 \u202e\n", encoding="utf-8")

    assert last_error(log, LiveState("job", {})) == "the name \\x1b]0;x\\x07 \\u202e"


def test_the_page_of_a_preparation_holds_no_tag_and_no_link(tmp_path):
    prepared = Prepared(
        tmp_path, tmp_path, [], "volumes", [], [("list", LINK), ("training", LINK)], {"Refused": [LINK, EVIL]}
    )
    text = page(prepared, LINK, {"folder": f"`{LINK}"})

    tokens = [
        one for token in MarkdownIt("commonmark").enable("table").parse(text) for one in token.children or [token]
    ]
    assert not {"link_open", "html_inline", "html_block", "image"} & {token.type for token in tokens}
    assert [token.type for token in tokens].count("td_open") == 2
    assert "\x1b" not in text


def test_no_csv_that_is_written_begins_a_cell_with_a_formula(tmp_path):
    pd = pytest.importorskip("pandas")
    write_table(tmp_path / "cases.csv", ["case", FORMULA], [(FORMULA, "-0.5")])
    texts = [
        (tmp_path / "cases.csv").read_text(),
        table([FORMULA], [{FORMULA: FORMULA}]).decode(),
        csv_bytes(pd.DataFrame({FORMULA: [FORMULA], "n": [-0.5]})).decode(),
    ]

    cells = [cell for text in texts for row in csv.reader(io.StringIO(text)) for cell in row]
    assert cells.count("'" + FORMULA) == 6
    assert cells.count("-0.5") == 2
    assert FORMULA not in cells


@pytest.mark.parametrize("name", [r"$\frac{1}$", "$x$", r"$\evil$", "50 $ to 60 $", r"\$a"])
def test_a_chart_draws_a_name_as_it_is_written(name):
    from matplotlib.figure import Figure

    with plots.style():
        figure = Figure(layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], label=name)
        axes.set_yticks([0], [name])
        axes.set_title(name)
        axes.annotate(name, (0, 0))
        axes.legend()
        drawn = plots.svg(figure, "chart")
        plots.png(figure, dots=40)

    assert drawn.count(f">{name}<") == 4
