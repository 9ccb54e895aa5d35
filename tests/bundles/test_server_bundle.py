"""A bundle as a server that trains opens it."""

from pathlib import Path

import pytest

from fedmed.bundles.bundle import Bundle, server_bundle
from fedmed.bundles.contract import Use, faults
from fedmed.errors import BundleError, OverrideError


@pytest.fixture
def bundle(monkeypatch):
    folder = Path(__file__).parents[1] / "federation"
    monkeypatch.setenv("FEDMED_BUNDLES", str(folder))
    monkeypatch.syspath_prepend(folder / "serving_bundle")
    return Bundle("serving_bundle", [], {"dropout": 0.5})


def test_the_servers_overlay_and_settings_come_on_top(bundle):
    local = server_bundle(bundle, {"overlay": "serve", "settings": {"server_rate": 0.5}})
    assert local.overlays == ["serve"] and local.overrides == {"dropout": 0.5, "server_rate": 0.5}
    assert local.parser()["server_rate"] == 0.5 and "server" not in bundle.parser()
    requested = Use(labels=False, trains_mean=True)
    assert faults(local, requested) == []
    assert faults(bundle, requested) == [
        "configs/train.yaml has no 'server#training': it trains the averaged network, see "
        "fedmed/training/server_engine.py"
    ]


def test_what_a_method_says_wrongly_is_told(bundle):
    for said in ({}, {"overlay": 3}, {"overlay": "serve", "steps": 3}):
        with pytest.raises(BundleError, match="described by 'overlay' and 'settings', not by"):
            server_bundle(bundle, said)
    with pytest.raises(BundleError, match="has no overlay 'other'"):
        server_bundle(bundle, {"overlay": "other"})
    with pytest.raises(OverrideError, match="override 'server_steps': a job may not set this"):
        server_bundle(bundle, {"overlay": "serve", "settings": {"server_steps": 5}})
