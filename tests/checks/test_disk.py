"""Room, permissions, and how much room is needed."""

import shutil

import pytest

from fedmed.checks.ct_inspection import CTInspection
from fedmed.checks.entries import read_entries
from fedmed.checks.machine import check_disk, state_bytes
from fedmed.data.datalist import MaskEntry


def kinds(problems):
    return [finding.kind for finding in problems]


def test_enough_room_is_no_finding(small_site, tmp_path):
    spaces, problems = check_disk(small_site.config(), tmp_path, cache=1000, state=500)
    assert problems == [] and [(space.what, space.needed) for space in spaces] == [("cache", 1000), ("workspace", 500)]


def test_the_needs_of_folders_on_one_disk_add_up(small_site, tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10_000, 9_000, 1_000))
    config = small_site.config()
    assert kinds(check_disk(config, tmp_path, cache=600, state=600)[1]) == ["no_space"]
    assert kinds(check_disk(config, tmp_path, cache=300, state=300)[1]) == ["little_space"]
    assert kinds(check_disk(config, tmp_path, cache=300, state=100)[1]) == []


def test_what_is_in_the_cache_counts_as_free(small_site, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10_000, 9_300, 700))
    config = small_site.config()
    assert kinds(check_disk(config, None, cache=1000, state=0)[1]) == ["no_space"]
    folder = config.cache_dir / "fedmed-cases"
    folder.mkdir(parents=True, mode=0o700)
    (folder / f"{'0' * 64}.pt").write_bytes(b"x" * 400)
    (space,), (finding,) = check_disk(config, None, cache=1000, state=0)
    assert (space.needed, space.free, space.held) == (1000, 700, 400) and finding.kind == "little_space"
    assert "fedmed site purge" in finding.text


def test_a_cache_that_cannot_be_written_is_a_problem(small_site):
    config = small_site.config(cache_dir="/dev/null/cache")
    (finding,) = check_disk(config, None, 10, 0)[1]
    assert finding.kind == "cache" and "cache_dir" in finding.text and str(small_site.yaml) in finding.text


def test_a_cache_that_others_can_read_is_noted(small_site):
    config = small_site.config()
    folder = config.cache_dir / "fedmed-cases"
    folder.mkdir(parents=True)
    folder.chmod(0o755)  # whatever the umask
    (finding,) = check_disk(config, None, 10, 0)[1]
    assert finding.kind == "open_cache" and "chmod 700" in finding.text


def test_the_cache_grows_with_the_volume_in_mm(small_site):
    entries, _ = read_entries(small_site.config(), MaskEntry())
    cases = CTInspection().open(entries)
    voxels, cache_bytes = 20 * 18 * 8, CTInspection().cache_bytes
    assert cache_bytes(entries, cases, [], None) == voxels * (4 * 5 + 4)
    sample = entries[:1]
    assert cache_bytes(entries, cases, sample, 1000.0) == 5000
    for case in list(cases.values())[1:2]:
        case.spacing = tuple(2 * size for size in case.spacing)
    assert cache_bytes(entries, cases, sample, 1000.0) == 4000 + 8000


@pytest.mark.parametrize(("model", "expected"), [(None, 0), (100, 1100)])
def test_a_job_keeps_three_rounds_with_two_moments_and_the_sites_own_best_twice(model, expected):
    assert state_bytes(model) == expected
