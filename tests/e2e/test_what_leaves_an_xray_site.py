"""FedMoCo by ``fedmed simulate``: sites tell one another statistics of features, and nothing else that is theirs.

The same run equals the in-process loop bit by bit, and the command leaves its report. That a site which can never work
tells nobody why is in test_what_leaves_a_site.py.
"""

import contextlib
import io
import shutil
from dataclasses import replace

import pytest
import torch
import yaml

from fedmed.bundles.find import find_bundle
from fedmed.durable_files import load_tensors
from fedmed.federation.client import Client
from fedmed.federation.loop import run_job
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_job, write_job
from fedmed.privacy.limits import read_ledger
from fedmed.recovery.model_store import ModelStore
from fedmed_demo import demo_site
from tests.commands import fedmed
from tests.e2e import runs
from tests.e2e.runs import PATIENT

SITES = ("cxr_metro", "cxr_rural")
VALUES = ["mu", "sigma", "n"]
SMALL = {"batch_size": 4, "queue_size": 16, "metadata_min_images": 4, "rsa_samples": 8, "learning_rate": 0.02}
NARROW = {"encoder_widths": [8, 8, 16, 32]}  # a tenth of the demo's bytes are quicker to search
SPEC = {
    "rounds": 3,
    "epochs": 1.0,
    "bundle": "cxr_classification",
    "overlays": ["demo", "narrow"],
    "method": {"path": "fedmed.systems.fedmoco.method.FedMoCo", "args": {"exchange_from": 1}},
    "select": "last",
    "evaluate": False,
    "min_clients": 2,
    "overrides": {"unsupervised": SMALL},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory, fedmed_home, tap):
    """Folder of a finished run, ``ws`` by the command and ``loop`` in one process; what crossed the latter; what the
    command printed."""
    root = tmp_path_factory.mktemp("xray")
    (root / "configs").mkdir()
    for site in SITES:
        data = shutil.copytree(demo_site("chest_xray_tiny", site, fedmed_home), root / "data" / site)
        privacy = {"allowed_extras": ["rsa", *VALUES], "extras_min_images": 4}
        values = {"data_root": str(data), "device": "cpu", "threads": 1, "cache_dir": str(root / "cache" / site)}
        (root / "configs" / f"{site}.yaml").write_text(yaml.safe_dump({**values, "privacy": privacy}))
    runs.name_after_a_patient(root / "data" / SITES[0], "unlabeled", "image")
    bundle = shutil.copytree(find_bundle(SPEC["bundle"]), root / "bundles" / SPEC["bundle"])
    (bundle / "configs" / "narrow.yaml").write_text(yaml.safe_dump(NARROW))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FEDMED_BUNDLES", str(bundle.parent))
        job = write_job(Job.of({"name": "xray", "sites": dict.fromkeys(SITES, "unsupervised"), **SPEC}), root / "xray")
        yield root, *finished(job, root, tap(root), patch)


def finished(job, root, environment, patch):
    """Run the job both ways; return what crossed the loop and what the command printed."""
    for name, value in {**environment, "FEDMED_SITE_CONFIGS": str(root / "configs")}.items():
        patch.setenv(name, value)  # the simulator's processes get them too
    runs.leave_pictures_out(patch)
    with patch.context() as here, contextlib.redirect_stdout(io.StringIO()) as said:
        here.chdir(root)
        assert fedmed("simulate")([str(job), "--workspace", "ws"]) == 0, said.getvalue()[-3000:]
    reported = []
    with patch.context() as here:
        here.setattr(Client, "metadata", noted(Client.metadata, reported))
        here.setattr(Client, "train", noted(Client.train, reported))
        run_job(job, root / "loop")
    return reported, said.getvalue()


def noted(work, reported):
    def note(self, task):
        answer = work(self, task)
        reported.append((self.site.site, task, answer))
        return answer

    return note


@pytest.fixture(scope="module")
def secrets(run, secrets_type):
    """Images as files, as pixels and prepared for the network; features, momentum and all else that a site keeps."""
    (root, *_), result = run, secrets_type()
    for site in SITES:
        data = root / "data" / site
        result.add_site(data, data / "datalist.json", [PATIENT])
        for path in (root / "cache" / site).rglob("*.pt"):
            result.add_tensors(f"{site} prepared {path.stem[:8]}", load_tensors(path))
        for path in (root / "ws" / site / "simulate_job/fedmed/state").glob("round_*.pt"):
            result.add_tensors(f"{site} {path.stem}", dict(tensors(load_tensors(path), "")))
    del result.words["normal"]  # a finding, but also a part of `normalise`
    assert {"consolidation", "interstitial", PATIENT, "CXM-0001", "images/CXR-0001_0.jpg"} <= set(result.words)
    kept = [name for name in result.content if "round_" in name]
    assert any("queue" in name for name in kept) and any("momentum" in name for name in kept)
    assert sum("prepared" in name for name in result.content) >= 24  # of 30 training images
    return result


@pytest.fixture(scope="module")
def statistics(run, secrets_type):
    """Return a function that gives what the sites told one another in the loop: in the simulator it was the same."""

    def statistics():
        result = secrets_type()
        for site, task, answer in run[1]:
            if task.name == "metadata":
                result.add_tensors(f"{site} {task.round}", {name: answer.values[name] for name in ("mu", "sigma")})
        return result

    return statistics


def tensors(value, name):
    if isinstance(value, torch.Tensor):
        yield name, value
    for key, item in value.items() if isinstance(value, dict) else ():
        yield from tensors(item, f"{name}/{key}")


def test_the_loop_gives_the_same_model_bit_by_bit(run):
    root, *_ = run
    flare, initial = runs.model(root / "ws"), ModelStore(read_job(root / "xray"), root).initial
    assert runs.same(flare, runs.model(root / "loop"))
    assert not torch.equal(flare["encoder.conv1.weight"], initial["encoder.conv1.weight"])
    for one, other in zip(runs.rounds(root / "ws"), runs.rounds(root / "loop"), strict=True):
        for key in ("round", "aggregated", "accepted", "coefficients", "extras", "bytes_down", "bytes_up"):
            assert one[key] == other[key], key
        assert one["accepted"] == list(SITES) and not one["refused"]
        assert all(one["extras"][site].keys() == ({"rsa", "n"} if one["round"] else {"rsa"}) for site in SITES)
        assert one["coefficients"].keys() == set(SITES) and min(one["coefficients"].values()) > 0


def test_the_command_shows_the_rounds_and_leaves_a_report(run):
    root, _, said = run
    assert "round 3/3 finished" in said and (root / "ws/report/report.html").is_file()


def test_each_site_gets_the_others_statistics_and_never_its_own(run):
    _, reported, _ = run
    sent = {(site, task.round): answer.values for site, task, answer in reported if task.name == "metadata"}
    assert set(sent) == {(site, round) for site in SITES for round in (1, 2)}
    for site, task, _ in reported:
        if task.name != "train":
            continue
        others = task.extras.get("others", [])
        assert len(others) == (task.round > 0) and task.reuse == (task.round > 0)
        for other in others:
            theirs = sent[SITES[1 - SITES.index(site)], task.round]
            assert other.keys() == {"mu", "sigma"} and all(torch.equal(other[name], theirs[name]) for name in other)


def test_nothing_secret_is_on_the_wire_but_the_statistics_are(run, secrets, statistics):
    root, reported, _ = run
    model = next(task.tensors for _, task, _ in reported if (task.name, task.round) == ("metadata", 2))
    control = statistics().add_tensors("model", {n: t for n, t in model.items() if n.endswith("conv1.weight")})
    both = replace(secrets, content=secrets.content | control.content)  # one search takes half the time of two
    assert len(control.content) == 2 * 2 * 2 + 5 and set(both.found_in(runs.captured(root))) == set(control.content)
    planted = next(content for name, content in secrets.content.items() if "prepared" in name)
    assert secrets.found_in(b"x" * 99 + planted[2000:3000] + PATIENT.encode())  # a search that finds


def test_nothing_secret_is_at_the_server_nor_the_statistics(run, secrets, statistics):
    final = runs.model(run[0] / "ws")
    control = type(secrets)().add_tensors("model", {"encoder": final["encoder.conv1.weight"]})
    both = replace(secrets, content=secrets.content | statistics().content | control.content)
    assert both.found_in(runs.kept_by_the_server(run[0] / "ws")) == list(control.content)


def test_every_site_has_written_down_what_it_sent(run):
    root, *_ = run
    for site in SITES:
        lines = [line for line in read_ledger(root / "ws" / site) if line["answer"] != "live"]
        assert [line["answer"] for line in lines] == ["update", "metadata", "update", "metadata", "update"]
        for line in lines:
            names = set(VALUES) if line["answer"] == "metadata" else {"rsa"}
            assert line["extras"].keys() == names and bool(line["tensors"]) == (line["answer"] == "update")
        assert lines[1]["extras"]["mu"] == "float32 32" and lines[1]["extras"]["sigma"] == "float32 528"
        assert not (root / "ws" / site / "simulate_job/fedmed/state/received.pt").exists()
