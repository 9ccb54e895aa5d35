"""A table that would fill the memory, or never ends, is refused before it is split into cells."""

import os

import pytest

from fedmed.data import tables
from fedmed.data.prepare.video_layouts.layout import rows_of_text
from fedmed.data.prepare.video_layouts.plain import Plain
from fedmed.data.prepare.xray_labels import read_table
from fedmed.data.tables import table_lines
from fedmed.data.video.file_source import open_video
from fedmed.data.video.label_table import read_label_table
from fedmed.errors import DataError


def readers(folder):
    """Reader of each kind of table -> the table."""
    (folder / "frames").mkdir()
    return {
        "xrays": (lambda: read_table(folder / "labels.csv", {}), folder / "labels.csv"),
        "phases": (lambda: read_label_table(folder / "phases.csv", None, None), folder / "phases.csv"),
        "layout": (lambda: rows_of_text(folder / "rows.csv", ","), folder / "rows.csv"),
        "index": (lambda: Plain().find(folder), folder / "videos.csv"),
        "times": (lambda: open_video(folder / "frames"), folder / "frames" / "frames.csv"),
    }


HEADS = {"xrays": "file", "phases": "second", "layout": "a", "index": "video", "times": "file,second"}


@pytest.fixture(params=HEADS)
def table(request, tmp_path):
    """Reader of a table, the table, and how its heading begins."""
    read, path = readers(tmp_path)[request.param]
    return read, path, HEADS[request.param]


def test_a_table_as_excel_saves_it_by_default_is_refused_with_the_way_to_save_it(table):
    read, path, head = table
    path.write_bytes(f"{head};label\nRöntgen 1.jpg;x\n".encode("cp1252"))
    with pytest.raises(DataError, match="is not in UTF-8; in Excel save it as 'CSV UTF-8'"):
        read()


def test_a_table_of_labels_without_times_says_which_columns_it_needs(tmp_path):
    (tmp_path / "a.csv").write_text("Bild;Phase\nframe_0.png;prep\n")
    with pytest.raises(DataError, match="it has Bild, phase; write 'second,phase' or 'start,end,phase'"):
        read_label_table(tmp_path / "a.csv", None, None)


def test_two_million_columns_are_refused(table):
    read, path, head = table
    path.write_text(f"{head}{',' * 2_000_000}\n1{',' * 2_000_000}\n")
    with pytest.raises(DataError, match=rf"{path.name}: line 1 has 2000\d\d\d characters, and a line of a table at"):
        read()


def test_a_quotation_mark_that_is_never_closed_is_told(table):
    read, path, head = table
    path.write_text(f'{head}\n"1\n' + 2000 * f"{'x' * 99}\n")
    with pytest.raises(DataError, match=r"\.csv: is not a CSV \(field larger than field limit"):
        read()


def test_a_table_that_is_no_file_is_refused(table):
    read, path, _ = table
    path.symlink_to("/dev/zero")
    with pytest.raises(DataError, match=r"is a device, not a file|no video for|has no frames"):  # the last: not found
        read()


def test_the_size_is_looked_at_first(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("file,label\na.png,x\n")
    assert table_lines(path) == ["file,label", "a.png,x"]
    with pytest.raises(DataError, match=r"a\.csv: has 19 bytes, and a table at most 18; leave out columns"):
        table_lines(path, 18)
    with path.open("wb") as file:
        os.truncate(file.fileno(), tables.OF_IMAGES + 1)  # without a byte on the disk
    with pytest.raises(DataError, match="bytes, and a table at most"):
        read_table(path, {})
