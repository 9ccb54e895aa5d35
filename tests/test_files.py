"""What is written of patients may be read by its owner only, or by the group where a person wants that."""

import os
import stat
from pathlib import Path

import pytest

from fedmed.files import GROUP, close_tree, private_files, write_atomically

SCRIPTS = Path(__file__).parents[1] / "scripts"
OPEN = {"dependencies", "make_demo_data", "package_job", "purge_cache", "write_docs"}  # of nobody's patients


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


@pytest.mark.parametrize("script", sorted(set(path.stem for path in SCRIPTS.glob("[!_]*.py")) - OPEN))
def test_every_command_that_writes_of_patients_closes_its_files(script):
    text = (SCRIPTS / f"{script}.py").read_text("utf-8")
    closed = "@private_files()\ndef main(" in text or (script.startswith("prepare_") and "return run_command(" in text)
    assert closed, f"{script}.py: decorate main() with @private_files(), or add it to OPEN"
