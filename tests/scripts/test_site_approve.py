"""fedmed site approve, and what other commands tell a program."""

import json

import pytest
import yaml

from fedmed.jobs.study_text import changed_text
from tests.commands import fedmed
from tests.shipped import JOBS, shipped

SITE = """\
# The hospital's own file.
data_root: {root}
datalist: datalist.json
privacy:  # what may leave
  # five cases
  min_cases: 5
# the end
"""


@pytest.fixture
def site(tmp_path):
    (tmp_path / "data").mkdir()
    path = tmp_path / "ct_east.yaml"
    path.write_text(SITE.format(root=tmp_path / "data"))
    return path


def test_what_a_job_asks_is_allowed_and_all_else_of_the_file_stays(site, capsys):
    before, asked = site.read_text(), ["--job", shipped("covid_agreement")]
    assert fedmed("site", "approve")([site, *asked, "--yes"]) == 0
    assert "privacy.allowed_extras has" in (said := capsys.readouterr().out) and "agreed_share" in said
    text = site.read_text()
    line = next(line for line in text.splitlines() if "allowed_extras" in line)
    assert text.replace(f"{line}\n", "") == before and site.with_name("ct_east.yaml.before").read_text() == before
    assert set(yaml.safe_load(text)["privacy"]["allowed_extras"]) >= {"agreed_share", "mean_scores"}
    assert fedmed("site", "approve")([site, *asked]) == 0 and "nothing was changed" in capsys.readouterr().out


def test_nothing_is_allowed_where_nobody_can_be_asked(site, monkeypatch, capsys):
    before = site.read_text()
    monkeypatch.setattr("sys.stdin", open("/dev/null"))  # noqa: SIM115
    assert fedmed("site", "approve")([site, "--job", shipped("covid_agreement")]) == 2
    assert "--yes allows it" in capsys.readouterr().err and site.read_text() == before


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("a: 1\n", "a: 1\nb: {c: [x]}\n"),
        ("b:\n  d: 1  # one\n", "b:\n  d: 1  # one\n  c: [x]\n"),
        ("b:\n  c: [y]\n  d: 1\na: 2\n", "b:\n  c: [x]\n  d: 1\na: 2\n"),
        ("b: {d: 1}\n# end\n", "b: {d: 1, c: [x]}\n# end\n"),
        ("b:\na: 1\n", "b: {c: [x]}\na: 1\n"),
        ('{"a": 1, "b": {"d": 2}}', "a: 1\nb:\n  d: 2\n  c:\n  - x\n"),
    ],
)
def test_one_value_of_a_block_is_changed_and_the_others_stay(text, result):
    changed = changed_text(text, {"b.c": ["x"]})
    assert yaml.safe_load(changed) == yaml.safe_load(result) and changed.count("#") == text.count("#")


def test_a_study_is_summed_up_for_a_person_and_for_a_program(capsys):
    assert fedmed("study", "check")(["instruments_fedst"]) == 0
    said = capsys.readouterr().out
    assert "instruments_fedst: a sound study" in said and "pip install 'fedmed[text,video]'" in said
    assert "fedmed fetch-list says where" in said
    assert fedmed("study", "check")([JOBS / "covid_agreement", "--set", "rounds=9", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (
        told["rounds"] == 9 and told["sites"]["ct_east"] == "unsupervised" and "agreed_share" in told["allowed_extras"]
    )
    assert fedmed("study", "check")(["covid_agreement", "--set", "rounds=-1", "--json"]) == 2
    assert not (printed := capsys.readouterr()).out and "rounds" in printed.err


def test_files_from_outside_are_listed_and_the_code_says_whether_they_are_here(fedmed_home, capsys):
    assert fedmed("fetch-list")(["covid_fssl"]) == 0 and "needs no file" in capsys.readouterr().out
    assert fedmed("fetch-list")(["tools_paper"]) == 1
    assert "alexnet-owt-7be5be79.pth: missing" in capsys.readouterr().out
    assert fedmed("fetch-list")(["tools_paper", "--json"]) == 1
    (one,) = json.loads(capsys.readouterr().out)
    assert one["sha256"].startswith("7be5be79") and one["places"][0].startswith(str(fedmed_home))


def test_a_ledger_for_a_program(finished_run, capsys):
    assert fedmed("site", "ledger")([finished_run / "ct_north", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["title"] == "ct_north" and int(told["facts"]["updates"]) > 0 and told["tables"]
