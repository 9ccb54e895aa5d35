"""What a study with ``gain`` will not tell: known before the training."""

from dataclasses import replace

import pytest

from fedmed.checks.gain_check import gain_notes
from fedmed.errors import JobError
from fedmed.jobs.control_study import control_job
from fedmed.jobs.job_folder import read_job
from fedmed.privacy.disclosures import SiteDisclosures
from fedmed.settings.site import load_site

TWO = {"ct_north": "supervised", "ct_south": "supervised"}


def test_each_site_that_tells_less_is_named_with_the_remedy(tiny_job, change_lists):
    assert gain_notes(tiny_job("plain")) == []
    change_lists("ct_north", lambda lists: lists.update(testing=lists["testing"][:1], validation=[]))
    change_lists("ct_south", lambda lists: lists.pop("testing"))
    notes = " ".join(gain_notes(tiny_job(sites=TWO, gain=True)))
    for words in (
        "no list 'validation'",
        "tests 1 patient: its gain has no interval",
        "ct_south has no list 'testing'",
    ):
        assert words in notes
    with pytest.raises(JobError, match="'gain' would be told by no site: ct_south has no list"):
        gain_notes(tiny_job("none", sites={"ct_south": "supervised"}, gain=True))


def test_a_control_trains_nobody_alone(tiny_job):
    assert not control_job(read_job(tiny_job(gain=True))).study.gain


def test_the_numbers_of_a_gain_are_told_beforehand_and_not_those_of_a_site_that_forbids_it(tiny_job):
    job = read_job(tiny_job(gain=True))

    def scalars(site):
        return [name for one in SiteDisclosures(job, site).closing() for name in one.scalars]

    assert "gain_p" in scalars(load_site("ct_north"))
    assert "gain_p" not in scalars(replace(load_site("ct_north"), train_alone=False))
    assert "gain_p" not in scalars(load_site("ct_east"))
