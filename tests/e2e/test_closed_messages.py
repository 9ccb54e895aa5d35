"""What real sites take and send, and jobs after more than that, which neither they nor their server run."""

import json

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

SITES = {"ct_north": "supervised", "ct_east": "unsupervised"}


@pytest.mark.slow
def test_a_whole_job_needs_no_message_beyond_the_lists(federation, write_tiny_job, tmp_path):
    job = write_tiny_job(tmp_path, "job", sites=SITES, rounds=2, custom=False)
    id = federation.submit(job)
    meta = federation.finish(id)
    assert meta["status"] == "FINISHED:COMPLETED", (meta, federation.said("server", *SITES))
    for site in SITES:
        logs = [federation.kit(site) / "log.txt", federation.run_folder(site, id) / "log.txt"]
        assert not [line for log in logs for line in log.read_text().splitlines() if "refused: " in line]
    for site, tags in told(federation.download(id)).items():
        print(site, tags)


def told(result):
    """Site -> names of the scalars on the server's TensorBoard."""
    return {
        path.parent.name: set(EventAccumulator(str(path)).Reload().Tags()["scalars"])
        for path in (result / "workspace" / "tb_events").rglob("events.out.tfevents.*")
    }
