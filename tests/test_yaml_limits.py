"""A YAML text that is small and means a lot is refused before anything is made of it."""

from pathlib import Path

import pytest
import yaml

from fedmed.bundles.bundle_parser import BundleParser
from fedmed.errors import JobError, SiteConfigError
from fedmed.jobs.study_text import parse_study
from fedmed.provisioning.project_file import read_project
from fedmed.settings.site import load_file
from fedmed.yaml_limits import DEEPEST, LONGEST, MOST, TooLarge, check_limits, load_limited

CHECKOUT = Path(__file__).resolve().parents[1]
BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{here}: &{here} [{', '.join([f'*{before}'] * 10)}]\n" for before, here in zip("abcdefgh", "bcdefghi", strict=True)
)
TOO_MUCH = {
    "more than 20000 values": BOMB,
    "more than 20 lists": f"a: {'[' * 200_000}",
    "20 lists and mappings": "a:\n" + "".join(f"{'  ' * n}a:\n" for n in range(1, 1000)),
    "more than 20000 values, aliases": f"a: [{'x, ' * MOST}]",
    "more than 1048576 characters": f"a: 1\n#{'x' * LONGEST}\n",
    "a value of more than 20000 characters": f"a: 1{':1' * 20_000}\n",  # a number to the base of 60
}
TOO_DEEP_BY_ALIASES = "a: &a0 [x]\n" + "".join(f"b{n}: &a{n} [*a{n - 1}]\n" for n in range(1, 40))


@pytest.mark.parametrize("said", TOO_MUCH)
def test_what_is_too_much_is_refused_and_said(said):
    with pytest.raises(TooLarge, match=said):
        check_limits(TOO_MUCH[said])


def test_levels_of_aliases_count():
    with pytest.raises(TooLarge, match="lists and mappings in one another"):
        check_limits(TOO_DEEP_BY_ALIASES)


def test_an_anchor_within_itself_is_not_built_without_end():
    check_limits("a: &a [*a]")  # a mistake that is told elsewhere, and no growth


def test_what_is_within_the_limits_is_read():
    deep = "[" * (DEEPEST - 1) + "]" * (DEEPEST - 1)
    check_limits(f"a: {deep}\nb: [{'x, ' * (MOST - 100)}]\nc: {'x' * 20_000}\n")
    assert load_limited("a: &a [1]\nb: *a\n") == {"a": [1], "b": [1]}


@pytest.mark.parametrize("text", TOO_MUCH.values(), ids=[said.replace(" ", "_") for said in TOO_MUCH])
def test_every_reader_refuses_it_with_the_file_and_what_to_do(text, tmp_path):
    path = tmp_path / "given.yaml"
    path.write_text(text)

    with pytest.raises(JobError, match="given.yaml.*(no file of FedMed needs that|write values out)"):
        parse_study(text, "given.yaml")
    with pytest.raises(SiteConfigError, match=r"given.yaml.*no file of FedMed needs that"):
        load_file(path)
    with pytest.raises(SiteConfigError, match=r"given.yaml.*no file of FedMed needs that"):
        read_project(path)
    with pytest.raises(yaml.YAMLError, match="no file of FedMed needs that"):
        BundleParser.load_config_file(path)


@pytest.mark.parametrize("folder", ["jobs", "research", "site_configs", "bundles", "custom", "tests", "examples"])
def test_the_repositorys_own_files_are_far_within(folder):
    paths = [path for end in ("*.yaml", "*.yml") for path in (CHECKOUT / folder).rglob(end)]
    assert paths or folder == "examples"
    for path in paths:
        check_limits(path.read_text(encoding="utf-8"))
