"""Parts of the docs that come from the code are current; the editors' JSON Schemas say what FedMed accepts."""

import json
import re
from functools import cache
from pathlib import Path

import write_pages as module
import yaml
from jsonschema import Draft202012Validator

from tests.shipped import names, shipped

CHECKOUT = Path(__file__).resolve().parents[1]
SITES = sorted((CHECKOUT / "site_configs" / "demo").glob("*.yaml"))


@cache
def validator(name):
    schema = json.loads((CHECKOUT / "docs" / "schema" / f"{name}.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def errors(name, values):
    return sorted("/".join(map(str, error.absolute_path)) for error in validator(name).iter_errors(values))


def test_what_is_written_is_current(monkeypatch, tmp_path, capsys):
    for name, text in module.pages().items():
        written = (CHECKOUT / "docs" / name).read_text(encoding="utf-8")
        assert written == text, f"docs/{name} is out of date: run docs/write_pages.py and commit the result"
    monkeypatch.setattr(module, "CHECKOUT", tmp_path)
    monkeypatch.setattr("sys.argv", ["write_pages.py"])
    module.main()
    assert {str(path.relative_to(tmp_path / "docs")) for path in tmp_path.rglob("*.*")} == set(module.pages())


def test_every_job_is_in_the_table_and_says_what_it_is():
    rows = [line.split(" | ") for line in module.jobs_page().splitlines() if line.startswith("| `")]
    there = sorted(str(shipped(name).relative_to(CHECKOUT)) for name in names())
    assert sorted(row[0].strip("| `") for row in rows) == there
    assert all(len(row) == 4 and len(row[1]) > 20 for row in rows)
    assert "2 with labels, 1 without, 1 only scored | 12 rounds of 30 steps |" in module.jobs_page()


def test_what_fedmed_ships_fits_the_schemas():
    template = (CHECKOUT / "site_configs" / "templates" / "fedmed_site.yaml").read_text()
    template = template.replace("site: {site}", "site: hospital_a")
    whole = re.sub(r"(?m)^# (privacy:|  )", r"\1", template)
    assert yaml.safe_load(whole)["privacy"]["clip_norm"] == 1.0
    assert [errors("site", yaml.safe_load(text)) for text in (template, whole)] == [[], []]
    assert SITES and not [path for path in SITES if errors("site", yaml.safe_load(path.read_text()))]
    assert errors("project", yaml.safe_load((CHECKOUT / "site_configs" / "project.yml").read_text())) == []


def test_an_editor_is_told_of_wrong_keys_and_values():
    site = {"data_root": "x", "threads": 0, "privacy": {"clip_norm": "1e-5"}}
    assert errors("site", site) == ["privacy/clip_norm", "threads"] and errors("site", {"data_rot": "x"}) == [""]
    project = {"name": "a", "participants": [{"name": "b", "type": "c", "org": "d"}]}
    assert errors("project", project) == ["", "participants/0/type"]
