"""Jobs that try to read the server and the site, on real kits: they get nothing, and nothing comes to server or lead.

Three federations: the kits as they are; a server that does not look at jobs, so that the site has to; and kits in which
nobody looks at jobs, so that only the second wall is left.
"""

import contextlib
import json

import pytest
from nvflare.fuel.flare_api.api_spec import InvalidJobDefinition

SITE = "ct_north"
KINDS = ("env", "file", "url")
LOOKS, READS = "plain_jobs", "json_only"  # the parts of a kit: who looks at jobs, and the second wall


@pytest.fixture(scope="module")
def bait(tmp_path_factory, hostile_jobs):
    placed = hostile_jobs.Bait(tmp_path_factory.mktemp("bait"))
    yield placed
    placed.close()


@pytest.fixture(scope="module")
def started(start_federation, bait, hostile_jobs):
    """Return a function: participant -> parts that its kit lacks -> a running federation with the bait."""
    words = {name: {hostile_jobs.VARIABLE: f"{bait.words['env']}-at-{name}"} for name in ("server", SITE)}
    return lambda without: start_federation({SITE: "supervised"}, without, words)


@pytest.fixture(scope="module")
def usual(started):
    """A federation with the kits as they are."""
    return started({})


@pytest.fixture
def submit(write_tiny_job, bait, hostile_jobs, tmp_path):
    """Return a function: federation, hostile job's name -> what was said, and the job's id where it was taken."""

    def submit(federation, name: str) -> tuple[str, str]:
        job = write_tiny_job(tmp_path, name, sites={SITE: "supervised"}, custom=False)
        hostile_jobs.JOBS[name](job, bait)
        return federation.try_to_submit(job)

    return submit


def assert_nothing_was_read(federation, bait, said: str = "", jobs: tuple[str, ...] = ()) -> None:
    """Search what server and lead hold: files, the server's words, descriptions and downloads of jobs."""
    assert not bait.requested, "somebody has asked the address"
    session = federation.session("lead")
    held = [said, json.dumps(session.list_jobs(detailed=True)), *(json.dumps(session.get_job_meta(id)) for id in jobs)]
    assert not bait.found_in("\n".join(held)), held
    results = [federation.download(id) for id in jobs]
    places = [federation.kit("server"), federation.kit("lead"), federation.folder / "home", *results]
    files = [file for place in places for file in place.rglob("*") if file.is_file()]
    assert len(files) > 20
    for file in [*files, federation.folder / "server.log"]:
        with contextlib.suppress(FileNotFoundError):  # the server is done with what it sent
            assert not bait.found_in(file.read_bytes()), file


def test_the_server_takes_no_hostile_job(usual, submit, bait, hostile_jobs):
    for name in hostile_jobs.JOBS:
        said, id = submit(usual, name)
        assert not id and ("has no place in a job" in said or "is not plain JSON" in said), (name, said)
        assert_nothing_was_read(usual, bait, said)
    assert usual.session("lead").list_jobs() == []


def test_the_server_takes_no_job_that_brings_an_id(usual, write_tiny_job, tmp_path):
    """NVFlare clears the folder of a job's id, at the server and at every site, before it unpacks the job there."""
    job = write_tiny_job(tmp_path, "honest", sites={SITE: "supervised"}, custom=False)
    meta = json.loads((job / "meta.json").read_text())
    (job / "meta.json").write_text(json.dumps({**meta, "job_id": "local"}))
    with pytest.raises(InvalidJobDefinition, match="has 'job_id', which no job may bring"):
        usual.submit(job)
    for name in ("server", SITE):
        assert (usual.kit(name) / "local" / "authorization.json.default").is_file()


@pytest.mark.slow
def test_a_site_takes_no_hostile_job_from_a_server_that_does(started, submit, bait, hostile_jobs):
    federation = started({"server": {LOOKS, READS}})
    jobs = {name: submit(federation, name)[1] for name in hostile_jobs.CLIENT}
    taken = {name: id for name, id in jobs.items() if id}
    assert set(jobs) - set(taken) == {"client_deeper"}, "NVFlare's server wants a file in the usual place"
    for name, id in taken.items():
        meta = federation.finish(id)
        assert f"{SITE}: NOT_PLAIN_JSON" in meta["job_deploy_detail"], (name, meta)
        assert not federation.run_folder(SITE, id).exists()
    assert_nothing_was_read(federation, bait, jobs=tuple(taken.values()))
    log = (federation.kit(SITE) / "log.txt").read_text()
    assert all(f"job {id}: NOT_PLAIN_JSON: the job's app: " in log for id in taken.values())


@pytest.mark.slow
def test_nothing_is_evaluated_where_nobody_has_looked(started, submit, bait):
    federation = started({"server": {LOOKS}, SITE: {LOOKS}})
    taken = []
    for name in [f"{part}_{kind}" for part in ("meta", "server", "client") for kind in KINDS]:
        said, id = submit(federation, name)
        assert bool(id) == name.startswith("client") and not bait.found_in(said), (name, said)
        taken += [id] if id else []
    for id in taken:
        assert federation.finish(id)["status"] == "FINISHED:FAILED_TO_RUN", federation.said("server", SITE)
    assert_nothing_was_read(federation, bait, jobs=tuple(taken))
