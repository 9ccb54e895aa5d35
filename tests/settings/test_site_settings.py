"""Site YAML: order of look-up, defaults, and one clear error for each mistake."""

import pytest
import yaml

from fedmed.errors import SiteConfigError
from fedmed.settings.site import find_site_file, load_named, load_site, parse_site


@pytest.fixture
def write(tmp_path):
    def write(values, folder=tmp_path, name="site_a.yaml"):
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / name
        path.write_text(values if isinstance(values, str) else yaml.safe_dump(values))
        return path

    return write


@pytest.fixture
def minimal(tmp_path):
    (tmp_path / "data").mkdir()
    return {"data_root": str(tmp_path / "data"), "device": "cpu"}


def load(path):
    return parse_site("site_a", yaml.safe_load(path.read_text()), path)


def test_defaults(write, minimal, tmp_path):
    site = load(write(minimal))
    assert site.datalist == tmp_path / "data" / "datalist.json"
    assert (site.threads, site.workers, site.amp, site.max_batch_size) == (1, 0, False, None)
    assert site.allow_release is False and site.allowed_classes == ()


def test_only_the_site_itself_can_allow_a_release(write, minimal):
    assert load(write({**minimal, "allow_release": True})).allow_release is True
    assert load(write({**minimal, "allow_release": None})).allow_release is False


def test_a_sites_own_words(write, minimal):
    assert load(write(minimal)).words == {}
    words = {"procedure": "Nephrectomy (partial), left", "hospital_kind": "université"}
    assert load(write({**minimal, "words": words})).words == words
    hash(load(write({**minimal, "words": words})))


def test_relative_paths_are_relative_to_the_file(write, minimal, tmp_path):
    site = load(write({**minimal, "data_root": "data", "cache_dir": "cache"}))
    assert site.data_root == tmp_path / "data" and site.cache_dir == tmp_path / "cache"


def test_order_of_lookup(write, minimal, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path / "configs"))
    second = write(minimal, tmp_path / "configs", "ct_north.yaml")
    assert find_site_file("ct_north", tmp_path / "kit") == second
    first = write(minimal, tmp_path / "kit" / "local", "fedmed_site.yaml")
    assert find_site_file("ct_north", tmp_path / "kit") == first
    monkeypatch.delenv("FEDMED_SITE_CONFIGS")
    assert find_site_file("ct_north").parent.name == "demo"


def test_a_yaml_in_the_home_folder_or_in_a_prepared_folder_there_is_found(write, minimal, tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path))
    monkeypatch.delenv("FEDMED_SITE_CONFIGS", raising=False)
    prepared = write(minimal, tmp_path / "sites" / "ct_north", "ct_north.yaml")
    assert find_site_file("ct_north") == prepared == load_named(str(prepared.parent)).source
    of_site = write(minimal, tmp_path / "sites", "ct_north.yaml")
    assert find_site_file("ct_north") == of_site


def test_missing_file_names_every_place_and_shows_an_example(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path))
    with pytest.raises(SiteConfigError, match=r"(?s)'nowhere'.*nowhere\.yaml.*site_configs/demo.*data_root:"):
        load_site("nowhere")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"thread": 2}, "unknown key 'thread'; did you mean 'threads'"),
        ({"threads": "two"}, "'threads' is 'two'; it must be a whole number"),
        ({"threads": 0}, "'threads' is 0; it must be at least 1"),
        ({"threads": True}, "'threads' is True"),
        ({"workers": -1}, "'workers' is -1"),
        ({"device": "gpu"}, "'device' is 'gpu'; use auto, cpu"),
        ({"allow_release": "yes please"}, "'allow_release' is 'yes please'; it must be true or false"),
        ({"allow_kept_release": True}, "'allow_kept_release' is true, but 'allow_release' is not"),
        ({"amp": True}, "'amp' is true, but the device is the CPU"),
        ({"data_root": "/does/not/exist"}, "folder /does/not/exist does not exist"),
        ({"data_root": None}, "data_root"),
        ({"site": "site_b"}, "'site' is 'site_b'; this site is called 'site_a'"),
        ({"demo": "chest_ct"}, "either 'data_root'"),
        ({"allowed_classes": ["my.methods.Mine", "os system"]}, "entry 2 of 'allowed_classes' is 'os system'"),
        ({"words": {"Procedure": "x"}}, "key 'words.Procedure' has a wrong name; it must be a name of small letters"),
        ({"words": {"procedure": "$import os"}}, "'words.procedure' is '\\$import os'; it must be at most 100 letters"),
        ({"words": {"procedure": "@device"}}, "'words.procedure' is '@device'"),
        ({"words": {"procedure": "two\nlines"}}, "'words.procedure' is"),
        ({"words": {"procedure": 3}}, "'words.procedure' is 3"),
        ({"words": "nephrectomy"}, "'words' is 'nephrectomy'"),
        ({"allowed_classes": "my.methods.Mine"}, "'allowed_classes' is 'my.methods.Mine'; it must be a list"),
    ],
)
def test_each_mistake_has_one_clear_error(write, minimal, change, message):
    path = write({**minimal, **change})
    with pytest.raises(SiteConfigError, match=message) as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("text", ["- a\n- b\n", "just text", "a: [1, 2\n", ""])
def test_malformed_yaml(write, text, tmp_path, monkeypatch):
    path = write(text)
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path))
    with pytest.raises(SiteConfigError, match="Example") as caught:
        load_site("site_a")
    assert str(path) in str(caught.value)


def test_a_file_with_several_mistakes_names_all_with_their_lines(write, monkeypatch, tmp_path):
    write("data_root: nowhere\nthread: 2\nprivacy:\n  clip_norm: 1e-3\n  delta: 2\n")
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(tmp_path))
    with pytest.raises(SiteConfigError) as caught:
        load_site("site_a")
    first, *lines = str(caught.value).split("\nExample:")[0].splitlines()
    assert first == f"{tmp_path / 'site_a.yaml'}: 4 mistakes:"
    assert [line.split(":")[0] for line in lines] == ["  line 1", "  line 2", "  line 4", "  line 5"]
    assert "mount it or correct the path" in lines[0] and "write 0.001" in lines[2]


def test_a_site_may_allow_classes_of_its_own(write, minimal):
    assert load(write({**minimal, "allowed_classes": ["my.methods.Mine"]})).allowed_classes == ("my.methods.Mine",)


def test_a_site_that_is_not_found_says_that_no_folder_was_set(monkeypatch, tmp_path):
    """A site prepared below $FEDMED_HOME is not found in a terminal that does not set it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("FEDMED_HOME", raising=False)
    with pytest.raises(SiteConfigError, match=r"\$FEDMED_HOME is not set; if .*: export FEDMED_HOME=FOLDER"):
        find_site_file("clinic")
    monkeypatch.setenv("FEDMED_HOME", str(tmp_path / "home"))
    with pytest.raises(SiteConfigError, match="has no configuration file") as raised:
        find_site_file("clinic")
    assert "is not set" not in str(raised.value)
