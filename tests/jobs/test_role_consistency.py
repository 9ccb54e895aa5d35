"""Roles of a job see images alike, or the job is refused before anything trains."""

import pytest

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.find import SHIPPED_BUNDLES
from fedmed.errors import BundleError, JobError
from fedmed.jobs.app_configs import files, role_differences

SITES = {"ct_north": "supervised", "ct_east": "unsupervised", "ct_west": "evaluate"}
NAMES = sorted(path.name for path in SHIPPED_BUNDLES.iterdir() if (path / "configs" / "federation.yaml").is_file())


@pytest.mark.parametrize("role", ["supervised", "unsupervised", "evaluate"])
def test_a_role_that_sees_images_at_another_scale_is_refused_by_name(job_of, role):
    coarse = {"pixdim": [8.0, 8.0, 16.0]}
    with pytest.raises(JobError, match=r"'pixdim' is .* for the role .* images of two kinds; give both the same"):
        files(job_of(name="scales", sites=SITES, rounds=1, steps=1, overrides={role: coarse}))
    everywhere = dict.fromkeys(SITES.values(), coarse)
    assert files(job_of(name="scales", sites=SITES, rounds=1, steps=1, overrides=everywhere))


def test_what_may_differ_is_no_fault(job_of):
    patches = {"unsupervised": {"patch_size": [32, 32, 32]}}
    assert files(job_of(name="patches", sites=SITES, rounds=1, steps=1, overrides=patches))


def test_each_value_that_differs_is_named_with_both_roles():
    sizes = ([27, 48], [72, 96])
    bundle, other = (Bundle("surgical_tool_classification", overrides={"image_size": size}) for size in sizes)
    (reported,) = role_differences({"supervised": bundle, "evaluate": other})
    assert reported.startswith("'image_size' is [27, 48] for the role 'supervised' and [72, 96] for 'evaluate'")
    assert list(role_differences({"supervised": bundle})) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_bundle_says_what_an_image_looks_like(name):
    bundle = Bundle(name)
    assert bundle.alike, "a bundle that lists nothing is not checked"
    assert list(role_differences({"supervised": bundle, "evaluate": bundle})) == []


def test_an_id_that_no_file_has_is_a_mistake_of_the_bundle(monkeypatch):
    bundle = Bundle("cxr_classification")
    monkeypatch.setitem(bundle.federation, "alike", ["image_sise"])
    with pytest.raises(BundleError, match="'alike' in federation.yaml lists 'image_sise', which no file has"):
        list(role_differences({"supervised": bundle, "evaluate": bundle}))
