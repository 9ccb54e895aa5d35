"""The privacy block of a site's YAML: defaults that change nothing, and one clear error for each mistake."""

import re
from pathlib import Path

import pytest
import yaml

from fedmed.errors import SiteConfigError
from fedmed.settings import privacy
from fedmed.settings.site import parse_site

DOCS = Path(__file__).resolve().parents[2] / "docs" / "privacy.md"
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
    assert limits == privacy.Privacy(account=fedmed_home / "privacy" / "site_a.json")
    assert (limits.allowed_tensors, limits.allowed_metrics, limits.allowed_extras) == (None, None, ())
    assert (limits.max_bytes, limits.clip_norm, limits.noise_multiplier, limits.max_epsilon) == (None,) * 4


def test_the_documented_block_is_valid_and_paths_are_relative_to_the_file(load, tmp_path):
    block = re.search(r"```yaml\n(privacy:.*?)```", DOCS.read_text(), re.DOTALL)[1]
    limits = load({**yaml.safe_load(block)["privacy"], "account": "local/account.json"})
    assert limits.account == tmp_path / "local/account.json"
    assert (limits.max_bytes, limits.clip_norm, limits.noise_multiplier) == (20_000_000, 1.0, 8.0)
    assert (limits.delta, limits.max_epsilon) == (1e-5, 10.0)
    assert (limits.allowed_extras, limits.extras_noise) == (("rsa", "mu", "sigma", "n"), 0.01)


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("none", "key 'privacy' is 'none'; it must be 'key: value' lines"),
        ({"clipnorm": 1}, r"unknown key 'privacy.clipnorm'; did you mean 'clip_norm'\? Known: account, allowed"),
        ({"allowed_tensors": ".*"}, r"'privacy.allowed_tensors' is '.\*'; it must be a list"),
        ({"allowed_tensors": ["("]}, r"'\(' is not a regular expression"),
        ({"allowed_metrics": [1]}, "entry 1 of 'privacy.allowed_metrics' is 1"),
        ({"max_bytes": -1}, "'privacy.max_bytes' is -1"),
        ({"max_bytes": True}, "'privacy.max_bytes' is True"),
        ({"clip_norm": 0}, "'privacy.clip_norm' is 0; it must be above 0"),
        ({"clip_norm": float("inf")}, "'privacy.clip_norm' is inf"),
        ({"clip_norm": float("nan")}, "'privacy.clip_norm' is nan"),
        ({**NOISE, "delta": 1}, "'privacy.delta' is 1; it must be below 1"),
        ({**NOISE, "delta": "1e-5"}, "YAML takes it for a text; write 0.00001"),
        ({**NOISE, "max_epsilon": 0}, "'privacy.max_epsilon' is 0"),
        ({**NOISE, "account": 3}, "'privacy.account' is 3"),
        ({"noise_multiplier": 1.0}, "'privacy.noise_multiplier' needs 'privacy.clip_norm'"),
        ({"noise_multiplier": 1.0, "clip_norm": 1.0}, "needs 'privacy.allowed_metrics'"),
        ({"max_epsilon": 3.0}, "'privacy.max_epsilon' needs 'privacy.noise_multiplier'"),
        ({"noise_seed": 0}, "'privacy.noise_seed' needs 'privacy.noise_multiplier' or 'privacy.extras_noise'"),
        ({"extras_noise": 0.1}, "'privacy.extras_noise' needs 'privacy.allowed_extras'"),
        ({"extras_min_images": 50}, "'privacy.extras_min_images' needs 'privacy.allowed_extras'"),
        ({"extras_min_images": 1, "allowed_extras": ["mu"]}, "extras_min_images' is 1; it must be at least 2"),
        ({"extras_noise": 0, "allowed_extras": ["mu"]}, "'privacy.extras_noise' is 0; it must be above 0"),
    ],
)
def test_each_mistake_has_one_clear_error(load, block, message, tmp_path):
    with pytest.raises(SiteConfigError, match=message) as caught:
        load(block)
    assert str(tmp_path / "site_a.yaml") in str(caught.value)


def test_noise_and_a_release_without_noise_contradict_each_other(load):
    with pytest.raises(SiteConfigError, match="'allow_release' is true, but 'privacy.noise_multiplier' is set"):
        load(NOISE, allow_release=True)


def test_all_mistakes_are_said_at_once(load):
    with pytest.raises(SiteConfigError, match="5 mistakes:") as caught:
        load({"clip_norm": 0, "delta": 2, "clipnorm": 1}, thread=2, threads=0)
    for key in ("clip_norm", "delta", "clipnorm"):
        assert f"key 'privacy.{key}'" in str(caught.value)
    contradictions = {"max_epsilon": 1, "noise_seed": 1, "extras_min_images": 5}
    with pytest.raises(SiteConfigError, match="3 mistakes:"):
        load(contradictions)
