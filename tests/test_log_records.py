"""A line of a log is what FedMed or NVFlare wrote, whatever a peer is called."""

import logging
import sys

from fedmed.log_records import PlainRecord

FORMAT = "%(asctime)s - %(name)s - %(levelname)s - %(message)s"


def logged(message: str, *args: object, exc_info: object = None) -> str:
    record = logging.getLogRecordFactory()("nvflare.any", logging.INFO, "f.py", 1, message, args, exc_info)
    return logging.Formatter(FORMAT).format(record)


def test_every_logger_of_a_process_that_imports_fedmed_makes_plain_records():
    assert logging.getLogRecordFactory() is PlainRecord


def test_a_name_neither_forges_a_line_nor_drives_a_terminal():
    text = logged("client %s joined", "a\n2026-01-01 00:00:00 - server - INFO - all sites agree \x1b[2J\r\u202e")

    assert not {"\x1b", "\r", "\u202e"} & set(text)
    assert all(line.startswith("    ") for line in text.splitlines()[1:])


def test_the_text_of_any_error_is_indented_below_its_record():
    try:
        raise ValueError("a\n2026-01-01 00:00:00 - server - INFO - all sites agree \x1b[2J")
    except ValueError:
        text = logged("failed", exc_info=sys.exc_info())

    lines = text.splitlines()
    assert "\x1b" not in text
    assert all(line.startswith("    ") for line in lines[1:])
    assert any("ValueError: a" in line for line in lines)


def test_nvflares_formatters_write_the_same():
    from nvflare.fuel.utils.log_utils import BaseFormatter, JsonFormatter

    record = PlainRecord("any", logging.INFO, "f.py", 1, "[identity=a, run=1]: x\n%s\x1b[31m", ("y\nz",), None)

    for formatter in (BaseFormatter(FORMAT), JsonFormatter(FORMAT)):
        text = formatter.format(record)
        assert "\x1b" not in text
        assert "\ny" not in text
