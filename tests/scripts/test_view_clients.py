"""fedmed view clients on tiny synthetic operations."""

import json

import numpy as np
import pytest
import yaml
from PIL import Image

from fedmed.data.video.label_table import read_label_table
from fedmed.errors import DataError
from fedmed.reports.client_sheet import look_at
from fedmed.settings.site import load_file
from fedmed_demo import demo_site
from tests.commands import fedmed


@pytest.fixture
def sites(fedmed_home, tmp_path):
    """YAMLs of two tiny sites, with a large black border and with none."""
    for site in ("lap_cho1", "lap_hei1"):
        (tmp_path / f"{site}.yaml").write_text(yaml.safe_dump({"demo": "lap_tools_tiny", "device": "cpu"}))
    return [tmp_path / "lap_cho1.yaml", tmp_path / "lap_hei1.yaml"]


def test_what_is_drawn(sites, fedmed_home):
    large, none = (look_at(load_file(path), "training", 3) for path in sites)
    assert large.edge > 0.08 and none.edge == 0
    assert large.frames.shape == (12, 120, 160, 3) and large.videos == 1
    assert len(set(large.shown)) == 3 and max(large.shown) < 12
    assert len(np.unique(large.frames.reshape(12, -1), axis=0)) == 12  # spread, though the file has one key frame
    root = demo_site("lap_tools_tiny", "lap_cho1", fedmed_home)
    (entry,) = json.loads((root / "datalist.json").read_text())["training"]
    table = read_label_table(root / entry["labels"], (), None)
    assert large.rows == len(table.seconds) and large.shares["grasper"] == pytest.approx(table.tools[:, 0].mean())


def test_a_sheet_of_two_sites(sites, tmp_path, capsys):
    script, out = fedmed("view", "clients"), tmp_path / "sheet.png"
    assert script([*map(str, sites), "--frames", "2", "--dpi", "40", "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out) and min(Image.open(out).size) > 150
    (tmp_path / "file").touch()
    assert script([str(sites[0]), "--out", str(tmp_path / "file" / "sheet.png")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_a_site_without_the_list(sites):
    site = load_file(sites[0])
    with pytest.raises(DataError, match="the list 'unlabeled' is missing"):
        look_at(site, "unlabeled", 3)
