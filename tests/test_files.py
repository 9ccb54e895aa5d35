"""What is written of patients may be read by its owner only, or by the group where a person wants that."""

import os
import stat
from pathlib import Path

import pytest

from fedmed.files import GROUP, close_tree, private_files, write_atomically
from tests.commands import every_command

# Of nobody's patients, or the work of another command or program.
OPEN = {
    "study init",
    "study check",
    "study package",
    "study plan",
    "site purge",
    "prepare demo",
    "provision",
    "add-site",
}
OPEN |= {"fetch-list", "label serve", "research"}


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[("", 0o600, 0o700), ("1", 0o640, 0o750)], ids=["owner", "group"])
def modes(request, monkeypatch):
    """Modes of files and folders, and the usual mask outside."""
    set_to, *expected = request.param
    monkeypatch.setenv(GROUP, set_to)
    before = os.umask(0o022)
    yield expected
    assert os.umask(before) == 0o022


def test_new_files_and_folders_are_closed_to_others(modes, tmp_path):
    @private_files()
    def write():
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "b").write_text("c")

    write()
    write_atomically(tmp_path / "a" / "d", lambda stream: stream.write(b"e"))
    file, folder = modes
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "b"), mode(tmp_path / "a" / "d")) == (folder, file, file)


def test_a_tree_is_closed_and_files_of_others_are_left_alone(modes, tmp_path):
    theirs, tree = tmp_path / "theirs", tmp_path / "tree"
    theirs.write_text("x")
    (tree / "below").mkdir(parents=True)
    (tree / "own").write_text("y")
    (tree / "below" / "link").symlink_to(theirs)
    os.link(theirs, tree / "below" / "hard")
    (tree / "below" / "dead").symlink_to(tmp_path / "nowhere")
    close_tree(tree)
    file, folder = modes
    assert (mode(tree), mode(tree / "below"), mode(tree / "own"), mode(theirs)) == (folder, folder, file, 0o644)


def test_every_command_that_writes_of_patients_closes_its_files():
    """Each is decorated with private_files(), but for those that write of nobody's patients."""
    assert {words for words, one in every_command() if not decorated(one.callback)} == OPEN


def decorated(work) -> bool:
    """Typer wraps a function once itself."""
    return hasattr(work.__wrapped__, "__wrapped__")
