"""Sites of a table that are made of recordings on first use, as the script would make them."""

import json

import cv2
import numpy as np
import pytest

from fedmed.errors import DataError, JobError
from research.runner.recorded_sites import RecordedSites
from tests.commands import fedmed

from .shipped_tables import data_of

SITES = RecordedSites(folder="operations", site="cho", blocks=[60, 10])
SECONDS = (5, 20, 64, 75, 100, 134, 160)


@pytest.fixture
def operation(tmp_path, monkeypatch):
    """Single frames of one operation, laid out as CholecT50; ``$FEDMED_HOME`` is empty."""
    folder = tmp_path / "data" / "operations"
    for part in ("labels", "videos/VID01"):
        (folder / part).mkdir(parents=True)
    triplets = {second: [[0, second % 2, *([0] * 12), 1]] for second in SECONDS}
    (folder / "labels" / "VID01.json").write_text(json.dumps({"fps": 1, "annotations": triplets}))
    for second in SECONDS:
        frame = np.full((48, 64, 3), 40 + second, np.uint8)
        cv2.imwrite(str(folder / "videos" / "VID01" / f"{second:06d}.png"), frame)
    monkeypatch.setenv("FEDMED_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path / "home"))
    return folder


def test_a_site_is_as_the_script_makes_it_and_is_made_once(operation, tmp_path):
    site = SITES.settings_of("cho_vid01")
    main = fedmed("prepare", "video")
    command = [str(operation), "--site", "cho", "--each", "--blocks", "60", "10", "--out", str(tmp_path / "by_hand")]
    assert main([*command, "--workers", "1"]) == 0
    for name in ("datalist.json", "datalist_whole.json", "prepared/labels/VID01_training.csv"):
        by_hand = tmp_path / "by_hand" / "cho_vid01" / name
        assert (site.data_root / name).read_bytes() == by_hand.read_bytes()
    assert site.threads == 1 and site.data_root.is_relative_to(tmp_path / "home")
    before = site.source.stat().st_mtime_ns
    assert SITES.settings_of("cho_vid01") == site and site.source.stat().st_mtime_ns == before
    other = SITES.model_copy(update={"blocks": [70.0, 5.0]}).settings_of("cho_vid01")
    assert other.data_root != site.data_root  # other blocks are another site


def test_what_cannot_be_made_is_named(operation, monkeypatch, tmp_path):
    with pytest.raises(DataError, match="no video makes the site 'cho_vid02'; there are cho_vid01"):
        SITES.settings_of("cho_vid02")
    monkeypatch.setenv("FEDMED_DATA", str(tmp_path))
    with pytest.raises(JobError, match="operations is not a folder; point FEDMED_DATA"):
        SITES.settings_of("cho_vid01")


def test_the_tables_on_real_frames_say_what_their_sites_are_made_of():
    for name in ("lap_cholect50", "lap_tools_cholect50", "lap_tools_cholect50_whole"):
        data = data_of(name)
        assert data.recorded.folder == "surgery_cholect50" and data.recorded.blocks == [60, 10]
        assert data.recorded.leave_out == (["gallbladder_extraction"] if name == "lap_cholect50" else [])
