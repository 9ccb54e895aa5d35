"""What somebody else wrote is shown as it is, and does nothing where it is shown."""

import csv
import io
import os
import re
import subprocess
import sys
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from fedmed.errors import FedMedError, UpdateRefused
from fedmed.plain_text import as_code, every_text, in_csv, in_lines, in_markdown, in_terminal

ODD = "\n\r\t\x1b[31m\x9b\x7f\u202e\u2066\u2028\u200f\ufeff\ud800"
TEXTS = st.text(st.one_of(st.sampled_from("\\`*_[]()<>#+-!|~&$:/=@.1aw\n" + ODD), st.characters()), max_size=30)
MARKDOWN = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


@given(TEXTS)
@example(ODD)
def test_a_line_of_a_terminal_holds_no_control_and_no_mark_of_direction(text):
    shown = in_terminal(text)

    assert not any(unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp") for one in shown)
    assert not any(unicodedata.bidirectional(one) in ("RLO", "LRO", "RLE", "LRE", "PDF", "RLI", "LRI") for one in shown)
    shown.encode()  # what a stream of UTF-8 is given


@given(TEXTS)
def test_what_was_made_harmless_stays_as_it_is(text):
    assert in_terminal(in_terminal(text)) == in_terminal(text)
    assert in_lines(in_lines(text)) == in_lines(text)


def test_plain_texts_of_any_language_stay_as_they_are():
    for text in ("Site A, 5 % of 3 mm²", "Größe – 肺炎 – פסח – می‌خواهم", "a\u00a0b"):
        assert in_terminal(text) == in_lines(text) == text


def test_a_text_of_several_lines_keeps_them_and_nothing_else():
    assert in_lines("one\n\ttwo\r\x1b") == "one\n\ttwo\\r\\x1b"


def test_a_long_text_is_cut_with_a_sign():
    assert in_terminal("a" * 300, 10) == "a" * 10 + "…"


def test_texts_and_keys_of_a_json_file_are_made_harmless_at_any_depth():
    assert every_text({"a\x1b": [{"b": "\n"}, 1, None]}) == {"a\\x1b": [{"b": "\\n"}, 1, None]}


def kinds(tokens) -> set[str]:
    return {token.type for token in tokens} | {kind for token in tokens for kind in kinds(token.children or [])}


@given(TEXTS)
@example("[a](javascript:alert(1))")
@example("<img src=x onerror=alert(1)>")
@example("<https://evil.example>")
@example("![x](http://evil.example/x.png)")
@example("&lt;b&gt; **a** __b__ ~~c~~ `d`")
@example("- a")
@example("1. a")
@example("# a")
@example("===")
@example("-- -")
@example("+")
@example("12)")
@example("a\\")
def test_markdown_shows_a_text_and_makes_nothing_of_it(text):
    tokens = MARKDOWN.parse(f"- {in_markdown(text)} .")

    plain = {"bullet_list_open", "list_item_open", "paragraph_open", "inline", "text", "paragraph_close"}
    assert kinds(tokens) <= plain | {"list_item_close", "bullet_list_close", "text_special"}
    shown = "".join(child.content for token in tokens for child in token.children or [])
    assert shown.removesuffix(".").strip() == in_terminal(text).strip()


@given(TEXTS, TEXTS)
def test_a_cell_of_a_markdown_table_stays_one(one, two):
    tokens = MARKDOWN.parse(f"| a | b |\n|---|---|\n| {in_markdown(one)} | {in_markdown(two)} |\n")

    assert [token.type for token in tokens].count("td_open") == 2


@pytest.mark.parametrize("text", ["http://evil.example", "www.evil.example", "ftp://a", "mailto:a@b.example"])
def test_an_address_is_no_link_in_markdown_of_a_forge(text):
    shown = in_markdown(text)

    assert re.search(r"\\[:.]", shown)  # a sign that is escaped belongs to no address
    assert not re.search(r"(?i)(?<!\\)://|www\.|mailto:", shown)


def test_names_stay_readable_in_markdown():
    for name in ("site_a-2, T1.5 (left)", "0.5 GB", "-5 HU", "+cu12"):
        assert in_markdown(name) == name


@given(TEXTS)
@example("``` a `")
def test_a_code_span_ends_where_its_text_does(text):
    tokens = MARKDOWN.parse(f"x {as_code(text)} y")

    if in_terminal(text).strip():
        assert {"code_inline", "text"} >= {child.type for child in tokens[1].children}
        assert len(tokens[1].children) == 3


@given(TEXTS)
@example("=HYPERLINK(1)")
@example("  =1+1")
@example("\t=1")
@example("\r=1")
@example("＝1")
@example("-2+3")
def test_no_cell_of_a_csv_begins_a_formula(text):
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow([in_csv(text), "end"])
    [[cell, _]] = csv.reader([stream.getvalue()])

    assert stream.getvalue().count("\n") == 1
    assert not cell.strip().startswith(("=", "@", "＝", "＋", "－", "＠"))
    assert not cell.strip().startswith(("+", "-")) or float(cell) is not None


@pytest.mark.parametrize("value", [-1.5, None, 3, "-1.5", "+2", "1e-4", "a-b", ""])
def test_numbers_and_plain_texts_of_a_csv_stay_as_they_are(value):
    assert in_csv(value) == value


def test_the_text_of_an_error_drives_no_terminal():
    assert str(FedMedError("the tensor 'a\x1b[2Jb'\nline two")) == "the tensor 'a\\x1b[2Jb'\nline two"


def test_a_refusal_is_one_line_and_not_long_whatever_the_tensor_is_called():
    error = UpdateRefused(
        "site", "unknown\nINFO all is well", "a\n2026 - server - INFO - round 1 \x1b[2J" + "x" * 10**6
    )

    assert "\n" not in str(error) + error.reason + error.tensor
    assert len(str(error)) < 1200


def test_a_terminal_that_lacks_a_character_shows_it_written_out():
    code = "from fedmed.plain_text import print_in_any_terminal as p; p(); print('Dice ± Müller')"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (0, "Dice \\xb1 M\\xfcller\n")
