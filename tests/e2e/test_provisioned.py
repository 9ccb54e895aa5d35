"""The whole way on real kits: provision, start over TLS, submit, watch, download, export, evaluate; and who may not."""

import json
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from nvflare.fuel.flare_api.api_spec import AuthorizationError, InvalidJobDefinition, NoConnection
from nvflare.fuel.flare_api.flare_api import new_secure_session
from nvflare.recipe import ProdEnv

from fedmed.bundles.infer import infer_image
from fedmed.durable_files import load_tensors
from fedmed.export.bundle import export_bundle
from fedmed.federation.loop import run_job
from fedmed.flare.recipe import FedMedRecipe
from fedmed.reports.run import read_run
from fedmed_demo import demo_site
from tests.commands import fedmed
from tests.e2e.runs import leave_pictures_out, same

CHECKOUT = Path(__file__).resolve().parents[2]
FIRST = {"ct_north": "supervised", "ct_west": "evaluate"}
LATE = "ct_east"  # joins later, without labels, with a kit that lets jobs bring no code


@dataclass
class Study:
    """A finished job without custom/: its folder, its id, its description and what the lead downloaded."""

    job: Path
    id: str
    meta: dict
    result: Path


@pytest.fixture(scope="module")
def whole(start_federation, bait_variables):
    """A running federation, with a site that joined after it had started, and bait for hostile jobs."""
    running = start_federation(FIRST, {}, bait_variables)
    running.command("add-site", LATE, "clinic_east", "--role", "unsupervised")
    running.settle(LATE)
    running.start(LATE)
    running.wait_for(LATE)
    return running


@pytest.fixture(scope="module")
def study(whole, write_tiny_job, lively, tmp_path_factory):
    sites = {**whole.sites, LATE: "unsupervised"}
    spec = {"sites": sites, "rounds": 2, "custom": False, "overrides": lively}
    job = write_tiny_job(tmp_path_factory.mktemp("study"), "study", **spec)
    assert not list(job.rglob("custom"))
    job_id = whole.submit(job)
    meta = whole.finish(job_id)
    assert meta["status"] == "FINISHED:COMPLETED", (meta, whole.said("server", *sites))
    return Study(job, job_id, meta, whole.download(job_id))


def test_every_site_took_part_also_the_late_one_and_no_code_travelled(study, whole):
    assert sorted(study.meta["job_deploy_detail"]) == sorted(f"{s}: OK" for s in ("server", *whole.sites, LATE))
    assert not study.meta.get("byoc")
    run = read_run(study.result)
    assert set(run.rounds[-1].sites) == {"ct_north", LATE}
    assert set(run.result["test"]) == {*whole.sites, LATE}
    assert (whole.run_folder("ct_north", study.id) / "fedmed" / "ledger.jsonl").is_file()


def test_the_model_is_that_of_the_simulator(study, tmp_path, tiny_site_configs):
    run_job(study.job, tmp_path)
    real = load_tensors(study.result / "workspace" / "app_server" / "FL_global_model.pt")["model"]
    loop = load_tensors(tmp_path / "server" / "simulate_job" / "app_server" / "FL_global_model.pt")["model"]
    assert real.keys() == loop.keys() and all(torch.equal(real[name], loop[name]) for name in loop)


@pytest.mark.slow
def test_a_recipe_in_prod_env_gives_the_same_model(study, whole):
    env = ProdEnv(str(whole.kit("lead")), login_timeout=60, username=whole.user("lead"))
    result = Path(FedMedRecipe(study.job).execute(env).get_result(timeout=1800))
    models = (load_tensors(one / "workspace" / "app_server" / "FL_global_model.pt") for one in (result, study.result))
    assert result != study.result and same(*(one["model"] for one in models))


def test_the_result_becomes_a_bundle_that_predicts_and_a_report(
    study, fedmed_home, tmp_path, no_torchscript, monkeypatch
):
    leave_pictures_out(monkeypatch)
    bundle = export_bundle(study.result, tmp_path / "covid_ct_segmentation").out
    image = sorted((demo_site("chest_ct_tiny", "ct_west", fedmed_home) / "images").iterdir())[0]
    mask, source = infer_image(bundle, image), nib.load(image)
    assert mask.shape == source.shape and np.array_equal(mask.affine, source.affine)
    assert fedmed("report")([str(study.result), "--out", str(tmp_path / "r")]) == 0
    assert (tmp_path / "r" / "report.html").stat().st_size > 10_000


def test_nothing_of_a_site_lies_at_the_server(study, whole, fedmed_home):
    """Neither in its logs nor in what it stores: no path of a site, and no log of a site."""
    secrets = [str(fedmed_home), *(str(whole.kit(site)) for site in (*whole.sites, LATE))]
    places = [whole.kit("server"), study.result, whole.folder / "server.log"]
    files = [f for place in places for f in ([place] if place.is_file() else place.rglob("*")) if f.is_file()]
    assert len(files) > 40
    for file in files:
        content = file.read_bytes()
        assert not [text for text in secrets if text.encode() in content], file
    assert whole.session("lead").list_job_components(study.id) == []
    store = whole.kit("server") / "store"
    assert (store / "jobs" / study.id).is_dir() and (store / "jobs").stat().st_mode & 0o777 == 0o700


@pytest.mark.slow
def test_a_job_with_custom_code_runs_where_it_is_allowed_and_elsewhere_is_refused(whole, write_tiny_job, tmp_path):
    sites = {"ct_north": "supervised", LATE: "evaluate"}
    job_id = whole.submit(write_tiny_job(tmp_path, "custom", sites=sites, steps=1))
    meta = whole.finish(job_id)
    assert meta["status"] == "FINISHED:COMPLETED" and meta["byoc"] is True
    refused = f"{LATE}: BYOC_NOT_PERMITTED"
    assert meta["job_deploy_detail"] == ["server: OK", "ct_north: OK", refused]
    assert set(read_run(whole.download(job_id)).result["test"]) == {"ct_north"}


# --- jobs that no server takes


def test_the_server_takes_no_hostile_job(whole, study, submit_hostile, bait, hostile_jobs):
    """And tells the lead nothing of what they are after: neither in words nor in files."""
    before, told = whole.session("lead").list_jobs(), []
    for name in hostile_jobs.JOBS:
        said, id = submit_hostile(whole, name)
        assert not id and ("has no place in a job" in said or "is not plain JSON" in said), (name, said)
        told.append(said)
    bait.assert_unread(whole, "\n".join(told))
    assert whole.session("lead").list_jobs() == before


def test_the_server_takes_no_job_that_brings_an_id(whole, write_tiny_job, tmp_path):
    """NVFlare clears the folder of a job's id, at the server and at every site, before it unpacks the job there."""
    job = write_tiny_job(tmp_path, "honest", sites={"ct_north": "supervised"}, custom=False)
    meta = json.loads((job / "meta.json").read_text())
    (job / "meta.json").write_text(json.dumps({**meta, "job_id": "local"}))
    with pytest.raises(InvalidJobDefinition, match="has 'job_id', which no job may bring"):
        whole.submit(job)
    for name in ("server", "ct_north"):
        assert (whole.kit(name) / "local" / "authorization.json.default").is_file()


# --- who may do what


@pytest.mark.parametrize(
    ("person", "command", "right"),
    [
        ("researcher", lambda s, job: s.submit_job(str(job.job)), "submit_job"),
        ("lead", lambda s, job: s.clone_job(job.id), "clone_job"),
        ("admin", lambda s, job: s.clone_job(job.id), "clone_job"),
        ("researcher", lambda s, job: s.abort_job(job.id), "abort_job"),
        ("researcher", lambda s, job: s.delete_job(job.id), "delete_job"),
        ("researcher", lambda s, job: s.download_job_result(job.id), "download_job"),
        ("researcher", lambda s, job: s.get_job_logs(job.id), "get_job_log"),
        ("lead", lambda s, job: s.disable_client("ct_west"), "disable_client"),
        ("lead", lambda s, job: s.configure_job_log(job.id, "DEBUG"), "configure_job_log"),
        ("admin", lambda s, job: s.configure_job_log(job.id, "DEBUG"), "configure_job_log"),
        ("lead", lambda s, job: s.cat_target("server", file="log.txt"), "cat"),
        ("lead", lambda s, job: s.cat_target("ct_north", file="log.txt"), "cat"),
        ("admin", lambda s, job: s.cat_target("ct_north", file="log.txt"), "cat"),
        ("admin", lambda s, job: s.ls_target("ct_north"), "ls"),
    ],
)
def test_who_may_not_is_told_so(whole, study, person, command, right):
    with pytest.raises(AuthorizationError, match=f"not authorized for the action '{right}"):
        command(whole.session(person), study)


def test_who_may_can(whole, study):
    researcher, lead = whole.session("researcher"), whole.session("lead")
    assert study.id in [job["job_id"] for job in researcher.list_jobs()]
    assert researcher.get_job_meta(study.id)["status"] == "FINISHED:COMPLETED"
    assert "Got the job" in whole.session("admin").cat_target("server", file="log.txt")
    refused = lead.restart("client", ["ct_west"])["client_status"]
    assert refused == {"ct_west": "user 'lead@example.org' is not authorized for 'restart'"}


# --- TLS


def handshake(whole, authority: Path, local: Path | None) -> bytes:
    """Connect as a client that trusts ``authority`` and shows the certificate in ``own``; the first byte it hears."""
    context = ssl.create_default_context(cafile=str(authority / "rootCA.pem"))
    context.set_alpn_protocols(["h2"])
    if local:
        context.load_cert_chain(local / "client.crt", local / "client.key")
    plain = socket.create_connection(("localhost", whole.port), 5)
    with plain, context.wrap_socket(plain, server_hostname="localhost") as secured:
        return secured.recv(1)


def test_only_kits_of_this_federation_can_connect(whole, new_federation):
    stranger = new_federation({"ct_north": "supervised"})  # of another authority, with the same names
    site, other = whole.kit("ct_north") / "startup", stranger.kit("ct_north") / "startup"
    assert handshake(whole, site, site)
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(whole, other, other)
    for impostor in (other, None):
        try:
            heard = handshake(whole, site, impostor)
        except (ssl.SSLError, ConnectionError) as error:
            assert not isinstance(error, ssl.SSLCertVerificationError), "the server's own certificate was refused"
            heard = b""
        assert heard == b"", "the server talks to a stranger"
    kit = stranger.kit("lead")
    config = (kit / "startup" / "fed_admin.json").read_text()
    (kit / "startup" / "fed_admin.json").write_text(config.replace(str(stranger.port), str(whole.port)))
    with pytest.raises(NoConnection):
        new_secure_session(whole.user("lead"), str(kit), timeout=3)


def test_a_client_without_tls_hears_nothing(whole):
    with socket.create_connection(("localhost", whole.port), 5) as plain:
        plain.settimeout(3)
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")  # gRPC's greeting
        try:
            heard = plain.recv(1024)
        except (TimeoutError, ConnectionError):
            heard = b""
    assert heard[:1] in (b"", b"\x15"), "the server answers in plain text"  # 21 is an alert of TLS
