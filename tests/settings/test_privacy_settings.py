"""The privacy block of a site's YAML: defaults that change nothing, and one clear error for each mistake."""

import pytest
import yaml

from fedmed.errors import SiteConfigError
from fedmed.settings import privacy
from fedmed.settings.site import parse_site

NOISE = {"clip_norm": 1.0, "noise_multiplier": 2.0, "allowed_metrics": []}


@pytest.fixture
def load(tmp_path):
    (tmp_path / "data").mkdir()

    def load(block=None, **values):
        path = tmp_path / "site_a.yaml"
        path.write_text(yaml.safe_dump({"data_root": "data", "device": "cpu", "privacy": block, **values}))
        return parse_site("site_a", yaml.safe_load(path.read_text()), path).privacy

    return load


@pytest.mark.parametrize("block", [None, {}])
def test_without_a_block_nothing_but_extras_is_limited(load, block, fedmed_home):
    limits = load(block)
    assert limits == privacy.Privacy(fedmed_home / "privacy" / "site_a.json")
    assert (limits.allowed_tensors, limits.allowed_metrics, limits.allowed_extras) == (None, None, ())
    assert (limits.max_bytes, limits.clip_norm, limits.noise_multiplier, limits.max_epsilon) == (None,) * 4


def test_the_example_is_valid_and_paths_are_relative_to_the_file(load, tmp_path):
    limits = load({**yaml.safe_load(privacy.EXAMPLE)["privacy"], "account": "local/account.json"})
    assert limits.account == tmp_path / "local/account.json"
    assert (limits.max_bytes, limits.clip_norm, limits.noise_multiplier) == (20_000_000, 1.0, 2.0)
    assert (limits.delta, limits.max_epsilon) == (1e-5, 50.0)
    assert (limits.allowed_extras, limits.extras_noise) == (("rsa",), 0.01)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("none", "'privacy' is 'none'"),
        ({"clipnorm": 1}, "unknown key 'privacy.clipnorm'. Known: account, allowed"),
        ({"allowed_tensors": ".*"}, "'privacy.allowed_tensors' is '.*'; it must be a list"),
        ({"allowed_tensors": ["("]}, r"'\(' is not a regular expression"),
        ({"allowed_metrics": [1]}, "'privacy.allowed_metrics' is"),
        ({"max_bytes": -1}, "'privacy.max_bytes' is -1"),
        ({"max_bytes": True}, "'privacy.max_bytes' is True"),
        ({"clip_norm": 0}, "'privacy.clip_norm' is 0; it must be a number above 0"),
        ({"clip_norm": float("inf")}, "'privacy.clip_norm' is inf"),
        ({"clip_norm": float("nan")}, "'privacy.clip_norm' is nan"),
        ({**NOISE, "delta": 1}, "'privacy.delta' is 1; .* below 1"),
        ({**NOISE, "delta": "1e-5"}, "YAML takes 1e-5 for a word"),
        ({**NOISE, "max_epsilon": 0}, "'privacy.max_epsilon' is 0"),
        ({**NOISE, "account": 3}, "'privacy.account' is 3"),
        ({"noise_multiplier": 1.0}, "'privacy.noise_multiplier' needs 'privacy.clip_norm'"),
        ({"noise_multiplier": 1.0, "clip_norm": 1.0}, "needs 'privacy.allowed_metrics'"),
        ({"max_epsilon": 3.0}, "'privacy.max_epsilon' needs 'privacy.noise_multiplier'"),
        ({"noise_seed": 0}, "'privacy.noise_seed' needs 'privacy.noise_multiplier' or 'privacy.extras_noise'"),
        ({"extras_noise": 0.1}, "'privacy.extras_noise' needs 'privacy.allowed_extras'"),
        ({"extras_min_images": 50}, "'privacy.extras_min_images' needs 'privacy.allowed_extras'"),
        (
            {"extras_min_images": 1, "allowed_extras": ["mu"]},
            "extras_min_images' is 1; statistics need 2 images",
        ),
        ({"extras_noise": 0, "allowed_extras": ["mu"]}, "'privacy.extras_noise' is 0; it must be a number above 0"),
    ],
)
def test_each_mistake_has_one_clear_error(load, block, message, tmp_path):
    with pytest.raises(SiteConfigError, match=message) as caught:
        load(block)
    assert str(tmp_path / "site_a.yaml") in str(caught.value)


def test_noise_and_a_release_without_noise_contradict_each_other(load):
    with pytest.raises(SiteConfigError, match="'allow_release' is true, but 'privacy.noise_multiplier' is set"):
        load(NOISE, allow_release=True)
