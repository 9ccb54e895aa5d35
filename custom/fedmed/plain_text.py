"""Text that somebody else wrote, made harmless for where it is shown: a terminal or log, Markdown, a CSV.

Peers, files and their names may hold anything: a line break that forges a line of a log, ESC, with which a terminal is
driven, a character that turns the order of a line around, a formula, a link. What is plain stays as it is.

    log.warning("site '%s': %s", site, in_terminal(reason))
    row = ["| ", in_markdown(name), " |"]

HTML is escaped by its templates, and :func:`fedmed.reports.plots.style` has charts draw texts as they are written.
"""

import io
import re
import sys
from collections.abc import Callable
from typing import Any

# C0 and C1 controls, DEL, separators of lines, marks of direction and other invisible signs, halves of surrogates.
# Not the joiners U+200C and U+200D, which some languages write with.
_ODD = (
    "\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff"
    "\U000e0000-\U000e007f"
)
_CONTROL = re.compile(f"[{_ODD}]")
_CONTROL_IN_LINES = re.compile(f"(?![\n\t])[{_ODD}]")
_ACTIVE = re.compile(r"[\\`*\[\]<>|~&$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")  # anywhere in a line of Markdown
_OPENING = re.compile(r"^(#|[-+](?=\s|$)|-(?=[-\s]*$)|=(?=[=\s]*$))|^(\d+)(?=[.)](?:\s|$))")  # only where it begins
_LINKED = re.compile(r"(?i)(:)(?=//)|(?<=www)(\.)|(?<=mailto)(:)|(?<=xmpp)(:)")  # links without any brackets
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")  # noqa: RUF001 # wide ones count in some spreadsheets too
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def print_in_any_terminal() -> None:
    """From now on write out characters, such as ±, that the terminal's encoding lacks; printing them was an error."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def in_terminal(text: object, most: int | None = None) -> str:
    """One line for a terminal or a log: control characters, line breaks too, are written out, such as ``\\x1b``.

    Args:
        most: characters of the text that are kept; ``…`` stands for the others.
    """
    shown = str(text)
    shown = shown if most is None or len(shown) <= most else f"{shown[:most]}…"
    return _CONTROL.sub(_written_out, shown)


def in_lines(text: object) -> str:
    """As :func:`in_terminal`, of a text that is meant to have several lines: line breaks and tabs stay."""
    return _CONTROL_IN_LINES.sub(_written_out, str(text))


def in_markup(text: object) -> str:
    """As :func:`in_terminal`, for rich: ``[red]`` in a name is no markup."""
    from rich.markup import escape  # most that use this module print nothing

    return escape(in_terminal(text))


def every_text(value: Any, shown: Callable[[object], str] = in_terminal) -> Any:
    """Plain values with every text in them, keys too, as ``shown`` makes it; tuples become lists."""
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, dict):
        return {every_text(key, shown): every_text(one, shown) for key, one in value.items()}
    return [every_text(one, shown) for one in value] if isinstance(value, (list, tuple)) else value


def in_markdown(text: object) -> str:
    """A piece of a line of Markdown, or a cell of its tables: no tag, link, emphasis, list, heading or formula."""
    shown = _ACTIVE.sub(r"\\\g<0>", in_terminal(text).strip())
    shown = _LINKED.sub(r"\\\g<0>", shown)
    return _OPENING.sub(lambda match: f"\\{match[1]}" if match[1] else f"{match[2]}\\", shown)


def as_code(text: object) -> str:
    """A code span of Markdown, which ends where the text does; not for cells of tables."""
    shown = in_terminal(text)
    fence = "`" * (1 + max(map(len, re.findall("`+", shown)), default=0))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def in_csv(value: object) -> object:
    """A cell of a CSV: a text that a spreadsheet would run as a formula gets the quote that marks it as text.

    Numbers, and texts that are numbers, stay as they are, and so does what is no text.
    """
    if not isinstance(value, str) and not hasattr(value, "__fspath__"):
        return value
    shown = in_terminal(value)
    return f"'{shown}" if shown.lstrip().startswith(_FORMULA) and not _NUMBER.fullmatch(shown) else shown


def _written_out(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
