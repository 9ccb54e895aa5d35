"""Everything that two sites' executors send, as bytes on the wire, is searched for what must stay there."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
import yaml
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.shareable import make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmed.durable_files import load_tensors
from fedmed.federation.client import Client
from fedmed.flare import executors, scalar_events
from fedmed.flare.convert import task_to_model
from fedmed.flare.filters import SiteLimitsFilter
from fedmed.jobs.job_folder import read_job
from fedmed.messages.task import Task
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.site import load_site
from tests.flare.wire import in_bytes, site_context

EXECUTORS = {"supervised": executors.SupervisedExecutor, "unsupervised": executors.ConsistencyExecutor}
PATIENT = "Meier-4711"


class Wire:
    """One site and the bytes that it sends."""

    def __init__(self, site, job, tmp_path, monkeypatch, model):
        self.site, self.model, self.sent, self.codes = site, model, [], []
        made = read_job(job)
        role, self.study = made.study.sites[site], made.digest
        self.executor, self.filter = EXECUTORS[role](), SiteLimitsFilter()
        self.run, self.kit, self.app = tmp_path / site, tmp_path / "kit", job / f"app_{role}"

        def live(component, dxo, fl_ctx, *args, **kwargs):
            self.sent.append(in_bytes(dxo.to_shareable()))

        monkeypatch.setattr(scalar_events, "send_analytic_dxo", live)

    def ask(self, name, round=0, names=None, **facts):
        tensors = {n: t for n, t in self.model.items() if names is None or n.startswith(names)}
        facts = {"steps": 2, "validate": self.site == "ct_north", **facts, "study": self.study}
        task = Task(name, round, 2, tensors if name != "release" else {}, **facts)
        fl_ctx = site_context(self.site, self.kit, self.run, self.app, task=name)
        reply = self.executor.execute(name, FLModelUtils.to_shareable(task_to_model(task)), fl_ctx, Signal())
        reply = self.filter.process(reply, fl_ctx)
        self.sent.append(in_bytes(reply))
        self.codes.append(reply.get_return_code())
        return reply

    @property
    def capture(self):
        return b"".join(self.sent)

    def private(self):
        """Every tensor of the site's kept state: private layers, optimizer, teacher."""
        result = {}

        def walk(value, name):
            if isinstance(value, torch.Tensor):
                result[name] = value
            for key, item in value.items() if isinstance(value, dict) else ():
                walk(item, f"{name}.{key}")

        for path in (self.run / "fedmed/state").glob("*.pt"):
            walk(load_tensors(path), path.stem)
        return result

    def secrets(self, secrets_type):
        site = load_site(self.site)
        secrets = secrets_type().add_site(site.data_root, site.datalist, [str(site.cache_dir), str(self.run), PATIENT])
        return secrets.add_tensors("state", self.private())

    def leaks(self, secrets_type):
        return self.secrets(secrets_type).found_in(self.capture)


@pytest.fixture
def wire(tiny_job, two_levels, tmp_path, monkeypatch):
    def wire(site, **spec):
        sites = {"ct_north": "supervised", "ct_east": "unsupervised"}
        job = tiny_job(**{"sites": sites, "rounds": 2, "overlays": two_levels, **spec})
        return Wire(site, job, tmp_path, monkeypatch, ModelStore(read_job(job), tmp_path).initial)

    return wire


@pytest.fixture
def video_wire(write_tiny_tools_job, tmp_path, monkeypatch):
    """A hospital with videos."""
    job = write_tiny_tools_job(tmp_path / "jobs", rounds=2)
    return Wire("lap_hei2", job, tmp_path, monkeypatch, ModelStore(read_job(job), tmp_path).initial)


def test_a_hospital_with_videos_alone_sends_the_features_and_not_the_classifier(
    write_tiny_phases_job, tmp_path, monkeypatch
):
    """Bytes on the wire: those of the tensors that extract features, and names and shapes beside them."""
    job = write_tiny_phases_job(tmp_path / "jobs", rounds=2, steps=1)
    model = ModelStore(read_job(job), tmp_path).initial
    sizes = {name: tensor.numel() * tensor.element_size() for name, tensor in model.items()}
    head = [name for name in sizes if name.startswith("classifier.")]
    features, further, sent = sum(sizes.values()) - sum(sizes[name] for name in head), 350 * len(sizes), {}
    for site in ("lap_bay", "lap_harbor"):
        end = Wire(site, job, tmp_path, monkeypatch, model)
        reply = FLModelUtils.from_shareable(end.ask("train"))
        assert end.codes == [ReturnCode.OK] and [name for name in head if name in reply.params] == (
            head if site == "lap_harbor" else []
        )
        sent[site] = end.sent[-1]
    assert features < len(sent["lap_bay"]) < features + further and b"classifier" not in sent["lap_bay"]
    assert len(sent["lap_harbor"]) - len(sent["lap_bay"]) > sum(sizes[name] for name in head)


@pytest.mark.parametrize("site", ["ct_north", "ct_east"])
def test_training_scoring_and_testing_send_no_secret(wire, secrets_type, site):
    end = wire(site)
    end.ask("train")
    end.ask("train", round=1, private_round=0)
    end.ask("evaluate", round=1, private_round=1)
    assert end.codes == [ReturnCode.OK] * 3 and len(end.capture) > 2 * sum(t.nbytes for t in end.model.values())
    assert len(end.sent) > 3  # scalars for TensorBoard too
    assert end.leaks(secrets_type) == []
    ledger = [json.loads(line) for line in (end.run / "fedmed/ledger.jsonl").read_text().splitlines()]
    assert len(ledger) == len(end.sent)


def test_a_site_with_videos_sends_no_frame_label_or_name(video_wire, secrets_type):
    end = video_wire
    end.ask("train", validate=True)
    end.ask("evaluate", round=1, private_round=0)
    assert end.codes == [ReturnCode.OK] * 2 and len(end.capture) > sum(t.nbytes for t in end.model.values())
    secrets = end.secrets(secrets_type).add_prepared(load_site(end.site).cache_dir).add_tested(end.run)
    parts = (".mp4 file", ".mp4 between 0 and 1", ".csv table", ".png file", "prepared", "LHB-003.csv of the test")
    assert all(any(part in name for name in secrets.content) for part in parts)
    assert {"LHB-001", "videos/LHB-001.mp4", "labels/LHB-001.csv", "masks/LHB-001/"} <= set(secrets.words)
    assert secrets.found_in(end.capture) == []
    frame, row = (next(c for n, c in secrets.content.items() if part in n) for part in ("prepared", ".csv table"))
    planted = secrets.found_in(end.capture + frame[4000:4100] + row[:90] + b"LHB-002")
    assert {"LHB-002"} < set(planted) and sum("prepared" in name or "table" in name for name in planted) >= 2


def test_partial_sharing_sends_no_private_tensor(wire, secrets_type):
    end = wire("ct_north", sharing="block_6")
    names = ("convInit", "down_layers")
    end.ask("train", names=names)
    end.ask("release", private_round=0)  # not allowed by the site
    assert end.codes == [ReturnCode.OK] * 2
    assert any(key.startswith("round_0.private.conv_final") for key in end.private())
    assert end.leaks(secrets_type) == []


def ill(tmp_path, monkeypatch, damage):
    """ct_north with one training image in a folder named after a patient, and that image damaged."""
    site = load_site("ct_north")
    root = shutil.copytree(site.data_root, tmp_path / "ill")
    datalist = json.loads((root / "datalist.json").read_text())
    entry = datalist["training"][0]
    (root / PATIENT).mkdir()
    moved = f"{PATIENT}/{PATIENT}.nii.gz"
    (root / entry["image"]).rename(root / moved)
    entry["image"] = moved
    (root / "datalist.json").write_text(json.dumps(datalist))
    damage(root / moved)
    (tmp_path / "configs").mkdir()
    values = {"data_root": str(root), "device": "cpu", "cache_dir": str(tmp_path / "cache")}
    (tmp_path / "configs/ct_north.yaml").write_text(yaml.safe_dump(values))
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path / "configs"))


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"no image")])
def test_an_error_that_names_a_patient_stays_at_the_site(wire, tmp_path, monkeypatch, secrets_type, caplog, damage):
    ill(tmp_path, monkeypatch, damage)
    end = wire("ct_north")
    end.ask("train")
    assert PATIENT in caplog.text  # the hospital is told
    assert PATIENT in (end.run / "fedmed/progress.jsonl").read_text()
    assert end.codes == [ReturnCode.EXECUTION_EXCEPTION]
    assert end.leaks(secrets_type) == []


def planted_tensor(monkeypatch, end):
    """Some voxels where a tensor of the same size belongs."""
    train = Client.train
    site = load_site(end.site)
    path = sorted(site.data_root.rglob("*_ct.nii.gz"))[0]

    def leak(client, task):
        update = train(client, task)
        import nibabel as nib

        voxels = np.asanyarray(nib.load(path).dataobj).astype(np.float32)
        name = max(update.tensors, key=lambda n: update.tensors[n].numel())
        flat = torch.from_numpy(voxels.reshape(-1).copy())[: update.tensors[name].numel()]
        tensor = update.tensors[name].clone(memory_format=torch.contiguous_format)
        tensor.view(-1)[: len(flat)] = flat
        return replace(update, tensors={**update.tensors, name: tensor})

    monkeypatch.setattr(Client, "train", leak)
    return path.name


def planted_state(monkeypatch, end):
    """A private layer instead of a shared one."""
    train = Client.train

    def leak(client, task):
        update = train(client, task)
        private = load_tensors(end.run / "fedmed/state/round_0.pt")["private"]
        name = max(private, key=lambda n: private[n].numel())
        return replace(update, tensors={**update.tensors, name: private[name]})

    monkeypatch.setattr(Client, "train", leak)
    return "private"


def planted_error(monkeypatch, end):
    """An error reply with its text, from an executor of another make and without the filter."""
    text = str(load_site(end.site).data_root / "images" / "CTN-0001_ct.nii.gz")
    reply = make_reply(ReturnCode.EXECUTION_EXCEPTION, {"__error__": f"cannot read {text}"})
    monkeypatch.setattr(end.executor, "execute", lambda *args: reply)
    monkeypatch.setattr(end.filter, "process", lambda shareable, fl_ctx: shareable)
    return "CTN-0001"


@pytest.mark.parametrize("plant", [planted_tensor, planted_state, planted_error])
def test_a_planted_leak_is_found(wire, secrets_type, monkeypatch, plant):
    end = wire("ct_north", sharing="block_6")
    what = plant(monkeypatch, end)
    end.ask("train", names=("convInit", "down_layers"), validate=False)
    assert any(what in name for name in end.leaks(secrets_type))


def test_the_filter_stops_a_text_that_an_executor_adds(wire, secrets_type, monkeypatch):
    end = wire("ct_north")
    reply = make_reply(ReturnCode.OK, {"note": "CTN-0001"})
    monkeypatch.setattr(end.executor, "execute", lambda *args: reply)
    end.ask("train")
    assert end.codes == [ReturnCode.TASK_RESULT_FILTER_ERROR] and end.leaks(secrets_type) == []
