"""Record of a run before it starts."""

import json
import subprocess

import pytest

from fedmed.federation import run_record as record


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """An own checkout with one commit; nothing is remembered of the real one."""
    monkeypatch.setattr(record, "CHECKOUT", tmp_path / "checkout")
    record.commit.cache_clear()
    (tmp_path / "checkout").mkdir()

    def git(*arguments):
        who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", str(tmp_path / "checkout"), *who, *arguments], check=True, capture_output=True)

    yield tmp_path / "checkout", git
    record.commit.cache_clear()


def test_the_commit_of_the_checkout_is_part_of_a_run(checkout, tmp_path):
    folder, git = checkout
    git("init")
    (folder / "code.py").write_text("1")
    git("add", "code.py")
    git("commit", "-m", "one")
    git("tag", "-a", "v1.2", "-m", "a version")
    record.RunRecord(tmp_path).start(job="x")
    facts = json.loads((tmp_path / "run.json").read_text())
    assert facts["commit"] == "v1.2" and facts["versions"]["torch"] and facts["started"]
    record.commit.cache_clear()
    (folder / "code.py").write_text("2")
    assert record.commit() == "v1.2-dirty"


@pytest.mark.parametrize("state", ["no checkout", "no git", "no commit"])
def test_an_installation_without_a_commit_runs_all_the_same(checkout, tmp_path, monkeypatch, state):
    _, git = checkout
    if state != "no checkout":
        git("init")
    if state == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    record.RunRecord(tmp_path).start(job="x")
    assert "commit" not in json.loads((tmp_path / "run.json").read_text())
