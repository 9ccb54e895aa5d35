"""The classes that a job may name beyond FedMed's: the server's list and each site's own."""

import pytest
import yaml

from fedmed.errors import SiteConfigError
from fedmed.settings.server import ALLOWED, load_server
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
    ("text", "message"),
    [
        ("allowed_classes: a.B", ", line 1: key 'allowed_classes' is 'a.B'; it must be a list"),
        ("allowed_classes: [3]", ", line 1: entry 1 of 'allowed_classes' is 3; it must be a class path"),
        ("allowed_classes: [B]", "entry 1 of 'allowed_classes' is 'B'; it must be a class path, such as package.mod"),
        ("[", "not a readable YAML file"),
        ("- a", "holds a list; it must hold 'key: value' lines"),
        ("x: 1", ", line 1: unknown key 'x'; Known: allowed_classes"),
    ],
)
def test_a_wrong_file_is_named(configs, text, message):
    (configs / "server.yaml").write_text(text)
    with pytest.raises(SiteConfigError, match=f"{configs}/server.yaml.*{message}"):
        load_server()


def test_a_wrong_environment_is_named(configs, monkeypatch):
    monkeypatch.setenv(ALLOWED, "a.B, c")
    with pytest.raises(SiteConfigError, match=f"{ALLOWED}: entry 2 of .* is 'c'; it must be a class path"):
        load_server()


def test_a_site_lists_its_own(tmp_path):
    values = {"data_root": str(tmp_path), "device": "cpu"}
    for said, found in (({}, ()), ({"allowed_classes": ["a.B"]}, ("a.B",))):
        (tmp_path / "a.yaml").write_text(yaml.safe_dump({**values, **said}))
        assert load_file(tmp_path / "a.yaml").allowed_classes == found
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({**values, "allowed_classes": "a.B"}))
    with pytest.raises(SiteConfigError, match="key 'allowed_classes' is 'a.B'; it must be a list"):
        load_file(tmp_path / "a.yaml")
