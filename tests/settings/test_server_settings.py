"""The classes that a job may name beyond FedMed's: the server's list and each site's own."""

import pytest
import yaml

from fedmed.errors import SiteConfigError
from fedmed.settings.server import load_server
from fedmed.settings.site import load_file


@pytest.fixture
def configs(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path))
    return tmp_path


def test_nothing_is_listed_unless_a_file_says_so(configs):
    assert load_server().allowed_classes == load_server(configs / "kit").allowed_classes == ()


def test_the_kit_comes_before_the_folder_of_settings(configs):
    (configs / "server.yaml").write_text("allowed_classes: [a.B]")
    assert load_server().allowed_classes == load_server(configs / "kit").allowed_classes == ("a.B",)
    (configs / "kit" / "local").mkdir(parents=True)
    (configs / "kit" / "local" / "fedmed_server.yaml").write_text("allowed_classes: [c.D, e.F]")
    assert load_server(configs / "kit").allowed_classes == ("c.D", "e.F") and load_server().allowed_classes == ("a.B",)


@pytest.mark.parametrize(
    "text", ["allowed_classes: a.B", "allowed_classes: [3]", "allowed_classes: [B]", "[", "- a", "x: 1"]
)
def test_a_wrong_file_is_named(configs, text):
    (configs / "server.yaml").write_text(text)
    with pytest.raises(SiteConfigError, match=f"{configs}/server.yaml: "):
        load_server()


def test_a_site_lists_its_own(tmp_path):
    values = {"data_root": str(tmp_path), "device": "cpu"}
    for said, found in (({}, ()), ({"allowed_classes": ["a.B"]}, ("a.B",))):
        (tmp_path / "a.yaml").write_text(yaml.safe_dump({**values, **said}))
        assert load_file(tmp_path / "a.yaml").allowed_classes == found
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({**values, "allowed_classes": "a.B"}))
    with pytest.raises(SiteConfigError, match="key 'allowed_classes' is 'a.B'; it must be a list"):
        load_file(tmp_path / "a.yaml")
