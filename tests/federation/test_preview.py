"""A site without a testing list sees what the model marks in some of its scans, and tells nobody."""

import json
import shutil

import yaml

from fedmed.federation.loop import run_job
from fedmed.settings.site import load_site
from tests.federation.run_folder import result_of


def test_scans_that_nobody_has_marked_are_drawn_and_not_scored(tmp_path, tiny_site_configs, tiny_job, monkeypatch):
    configs = shutil.copytree(tiny_site_configs, tmp_path / "configs")
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(configs))
    root = shutil.copytree(load_site("ct_east").data_root, tmp_path / "east")
    lists = json.loads((root / "datalist.json").read_text())
    (root / "datalist.json").write_text(json.dumps({"unlabeled": lists["unlabeled"]}))
    values = {"data_root": str(root), "datalist": "datalist.json", "device": "cpu", "threads": 1}
    (configs / "ct_east.yaml").write_text(yaml.safe_dump(values))
    run_job(tiny_job(sites={"ct_north": "supervised", "ct_east": "unsupervised"}, steps=1), tmp_path / "ws")
    shown = {path.name for path in (tmp_path / "ws/ct_east/simulate_job/fedmed/evaluation").iterdir()}
    assert shown == {f"unscored_{n}.npz" for n in range(1, 1 + min(3, len(lists["unlabeled"])))}
    result = result_of(tmp_path / "ws")
    assert result["test"]["ct_east"] == {"n_cases": 0} and "hd95_median" in result["test"]["ct_north"]
