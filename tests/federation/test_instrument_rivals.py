"""Methods with which networks for instruments are compared, a round or two through client and server."""

import json
import math
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from PIL import Image

from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import write_job
from fedmed.methods.find_method import find
from fedmed.settings.site import load_file
from fedmed_demo import demo_site
from tests.federation.run_folder import result_of, rounds_of

SITES = ("lap_cho1", "lap_hei2")
TINY = {"image_size": [32, 48], "batch_size": 2}


@pytest.fixture(scope="module")
def sites(tmp_path_factory, fedmed_home):
    """Two tiny sites whose videos have masks; the first video of each stands for synthetic pictures too."""
    folder, result = tmp_path_factory.mktemp("sites"), {}
    for site in SITES:
        root = demo_site("lap_tools_tiny", site, fedmed_home)
        lists = json.loads((root / "datalist.json").read_text())
        (folder / f"{site}.json").write_text(json.dumps({**lists, "synthetic": lists["training"][:1]}))
        values = {"site": site, "data_root": str(root), "datalist": str(folder / f"{site}.json"), "device": "cpu"}
        values |= {"threads": 1, "cache_dir": str(folder / "cache"), "privacy": {"allowed_extras": ["fim_trace"]}}
        (folder / f"{site}.yaml").write_text(yaml.safe_dump(values))
        result[site] = load_file(folder / f"{site}.yaml")
    return result


@pytest.fixture
def run(sites, tmp_path):
    """Return a function: method, overlays and values of a study -> server, and the records of its rounds.

    ``sites``: other settings of them.
    """
    usual = sites

    def run(method, *overlays, sites=usual, **said):
        study = {"bundle": "instrument_segmentation", "rounds": 2, "steps": 2, "select": "last", "evaluate": False}
        study |= {"overlays": ["demo", "single_frame", *overlays], "overrides": {"supervised": TINY}}
        study |= {"name": "x", "method": {"path": find(method), **said.pop("method", {})}, **said}
        job = Job.of({**study, "sites": dict.fromkeys(SITES, "supervised")})
        server = run_job(write_job(job, tmp_path / "job", replace=True), tmp_path / "ws", sites)
        return server, rounds_of(tmp_path / "ws")

    return run


def without(value, site, folder):
    """Settings of a site whose masks no longer have a value."""
    shutil.copytree(site.data_root, folder)
    for path in folder.rglob("masks/**/*.png"):
        mask = np.asarray(Image.open(path))
        Image.fromarray(np.where(mask == value, 0, mask).astype(np.uint8)).save(path)
    return replace(site, data_root=folder)


def test_a_site_whose_masks_lack_a_part_trains_and_is_aligned(run, sites, answers, tmp_path):
    """Its loss has no class to learn there, and its prototypes none to be drawn to."""
    one = without(2, sites[SITES[0]], tmp_path / "data")
    _, rounds = run("fedas", sites={**sites, SITES[0]: one}, steps=1, evaluate=True)
    assert [sorted(line["accepted"]) for line in rounds] == [sorted(SITES)] * 2
    for _, update in answers:
        assert all(bool(tensor.isfinite().all()) for tensor in update.tensors.values())
        assert update.extras["fim_trace"] > 0 and all(map(math.isfinite, update.metrics.values()))
    tested = result_of(tmp_path / "ws")["test"]
    assert set(tested) == set(SITES) and all(map(math.isfinite, (v for row in tested.values() for v in row.values())))


def test_directions(run, answers):
    server, rounds = run("fedld")
    assert rounds[1]["coefficients"] == {site: 0.5 for site in SITES}
    (before,) = [task.tensors for task, _ in answers[2:3]]
    sent = [update.tensors for _, update in answers[2:]]
    name = "head.weight"
    step = server.tensors[name] - before[name]
    plain = (sent[0][name] + sent[1][name]) / 2
    assert step.norm() < plain.norm() * 1.0001 and not torch.allclose(step, plain), "one of two directions is kept"


def test_private_queries_in_a_federation_that_mixes_synthetic_pictures(run, answers):
    server, _ = run("feddp", "synthetic_mixed", rounds=1, steps=4)
    queries = {name for name in server.tensors if ".attention.query." in name and name.startswith("encoder.")}
    assert queries and all(update.tensors.keys() == server.tensors.keys() - queries for _, update in answers)
    assert all(update.n_steps == 4 for _, update in answers)
