"""The server's settings: classes that a job may name, each site's own list of them, and images to train with."""

import re

import pytest
import yaml

from fedmed.errors import SiteConfigError
from fedmed.files import CHECKOUT
from fedmed.settings import server, site
from fedmed.settings.server import ALLOWED, CONFIG, load_server
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
        ("x: 1", ", line 1: unknown key 'x'; Known: allowed_classes,"),
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
    for said, result in (({}, ()), ({"allowed_classes": ["a.B"]}, ("a.B",))):
        (tmp_path / "a.yaml").write_text(yaml.safe_dump({**values, **said}))
        assert load_file(tmp_path / "a.yaml").allowed_classes == result
    (tmp_path / "a.yaml").write_text(yaml.safe_dump({**values, "allowed_classes": "a.B"}))
    with pytest.raises(SiteConfigError, match="key 'allowed_classes' is 'a.B'; it must be a list"):
        load_file(tmp_path / "a.yaml")


def test_the_file_of_a_single_run_comes_before_all_others(configs, monkeypatch):
    (configs / "server.yaml").write_text("threads: 2")
    (configs / "own.yaml").write_text("threads: 3\nallowed_classes: [a.B]")
    assert load_server().threads == 2
    monkeypatch.setenv(CONFIG, str(configs / "own.yaml"))
    monkeypatch.setenv(ALLOWED, "c.D")
    assert load_server().threads == 3 and load_server().allowed_classes == ("a.B", "c.D")
    monkeypatch.setenv(CONFIG, str(configs / "gone.yaml"))
    with pytest.raises(SiteConfigError, match=r"FEDMED_SERVER_CONFIG is '.*gone.yaml', and there is no such file"):
        load_server()


def test_images_of_a_server_that_trains(configs):
    (configs / "images").mkdir()
    (configs / "server.yaml").write_text("data_root: images\ncache_dir: kept\ndevice: cpu")
    facts = load_server().facts()
    images = configs / "images"
    assert facts["dataset_dir"] == str(images) and facts["datalist"] == str(images / "datalist.json")
    assert facts["cache_dir"] == str(configs / "kept") and facts["device"] == "cpu"


def test_a_server_without_images_says_where_to_name_them(configs):
    with pytest.raises(SiteConfigError, match=r"name no images. Write 'data_root' into .*server.yaml:\n"):
        load_server().facts()


def test_the_demos_own_server_is_for_jobs_of_demo_sites_alone(tmp_path, monkeypatch):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "ct_x.yaml").touch()
    (tmp_path / "server.yaml").write_text("threads: 7")
    monkeypatch.setattr(server, "DEMO", tmp_path / "server.yaml")
    result = {"ct_x": tmp_path / "demo" / "ct_x.yaml", "own": tmp_path / "own.yaml"}
    monkeypatch.setattr(site, "DEMO_SITES", tmp_path / "demo")
    monkeypatch.setattr(site, "find_site_file", lambda site: result[site])
    assert [load_server(sites=sites).threads for sites in (["ct_x"], ["ct_x", "own"], [])] == [7, 1, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data_root: nowhere", "key 'data_root' is 'nowhere'; the folder .*nowhere does not exist"),
        ("demo: lap_tools", "'demo' .* and 'demo_site' .* go together"),
        ("{data_root: ., demo: a, demo_site: b}", "either 'data_root' .* or 'demo'"),
        ("threads: 0", "key 'threads' is 0"),
        ("device: gpu", "use auto, cpu, cuda or cuda:<index>"),
    ],
)
def test_wrong_settings_of_training_are_told(configs, text, message):
    (configs / "server.yaml").write_text(text)
    with pytest.raises(SiteConfigError, match=message):
        load_server()


def test_the_template_of_a_kit_shows_every_key(tmp_path):
    shown = (CHECKOUT / "site_configs/templates/fedmed_server.yaml").read_text()
    filled = tmp_path / "local/fedmed_server.yaml"
    filled.parent.mkdir()
    text = re.sub(r"^# (\w+: )", r"\1", shown, flags=re.M)
    filled.write_text(text.replace("/FILL/IN/the/folder/of/synthetic/images", str(tmp_path)))
    read = load_server(tmp_path)
    assert read.data_root == tmp_path and read.allowed_classes == ("our_package.methods.OurMethod",)
    keys = {name for name in type(read).model_fields if f"{name}: " in shown}
    assert keys == set(type(read).model_fields) - {"demo", "demo_site"}
