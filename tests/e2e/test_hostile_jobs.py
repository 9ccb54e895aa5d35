"""Jobs that try to read the server and the site, on real kits: nothing is got, and nothing comes to server or lead.

Two federations: a server that does not look at jobs, so that the site has to; and kits in which nobody looks at jobs,
so that only the second wall is left. With the kits as they are, it is in test_provisioned.py.
"""

import pytest

pytestmark = pytest.mark.slow
SITE = "ct_north"
KINDS = ("env", "file", "url")
LOOKS, READS = "plain_jobs", "json_only"  # the parts of a kit: who looks at jobs, and the second wall


@pytest.fixture(scope="module")
def started(start_federation, bait, bait_variables):
    """Return a function: participant -> parts that its kit lacks -> a running federation with the bait."""
    return lambda without: start_federation({SITE: "supervised"}, without, bait_variables)


def test_a_site_takes_no_hostile_job_from_a_server_that_does(started, submit_hostile, bait, hostile_jobs):
    federation = started({"server": {LOOKS, READS}})
    jobs = {name: submit_hostile(federation, name)[1] for name in hostile_jobs.CLIENT}
    taken = {name: id for name, id in jobs.items() if id}
    assert set(jobs) - set(taken) == {"client_deeper"}, "NVFlare's server wants a file in the usual place"
    for name, id in taken.items():
        meta = federation.finish(id)
        assert f"{SITE}: NOT_PLAIN_JSON" in meta["job_deploy_detail"], (name, meta)
        assert not federation.run_folder(SITE, id).exists()
    bait.assert_unread(federation, jobs=tuple(taken.values()))
    log = (federation.kit(SITE) / "log.txt").read_text()
    assert all(f"job {id}: NOT_PLAIN_JSON: the job's app: " in log for id in taken.values())


def test_nothing_is_evaluated_where_nobody_has_looked(started, submit_hostile, bait):
    federation = started({"server": {LOOKS}, SITE: {LOOKS}})
    taken = []
    for name in [f"{part}_{kind}" for part in ("meta", "server", "client") for kind in KINDS]:
        said, id = submit_hostile(federation, name)
        assert bool(id) == name.startswith("client") and not bait.found_in(said), (name, said)
        taken += [id] if id else []
    for id in taken:
        assert federation.finish(id)["status"] == "FINISHED:FAILED_TO_RUN", federation.said("server", SITE)
    bait.assert_unread(federation, jobs=tuple(taken))
