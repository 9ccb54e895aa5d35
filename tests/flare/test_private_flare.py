"""NVFlare's private names: one module has them all, and says in words which is gone and what it was for."""

import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from fedmed.errors import FlareVersionError
from fedmed.flare import private_flare

CHECKOUT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("name", private_flare.NAMES)
def test_the_installed_nvflare_has_it(name):
    assert getattr(private_flare, name)


def test_the_installed_nvflare_starts_these_processes_and_is_the_one_that_was_tested():
    assert find_spec(private_flare.JOB_PROCESS) and find_spec(private_flare.SIMULATED_SITE)
    assert f"\nnvflare=={private_flare.TESTED}\n" in f"\n{(CHECKOUT / 'requirements.txt').read_text()}\n"


def test_no_other_module_names_what_is_private():
    """Neither imports nor texts; patterns are made so that this test does not find itself."""
    own, private = Path(private_flare.__file__), re.compile(r"nvflare[.]private")
    folders = ("custom", "research", "monailabel_app")
    files = {path for folder in folders for path in (CHECKOUT / folder).rglob("*.py")}
    assert own in files and not [path for path in files - {own} if private.search(path.read_text(encoding="utf-8"))]


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        ({"module": "nvflare.private.gone"}, "No module named 'nvflare.private.gone'"),
        ({"module": "nvflare.private.defs"}, "has no attribute 'AppDeployer'"),
        ({"parts": ("deploy_job",)}, "has no attribute 'deploy_job'"),
    ],
)
def test_what_is_gone_is_told_with_its_use_and_the_version_that_had_it(change, missing, monkeypatch):
    wanted = replace(private_flare.NAMES["AppDeployer"], **change)
    monkeypatch.setitem(private_flare.NAMES, "AppDeployer", wanted)
    with pytest.raises(FlareVersionError) as caught:
        from fedmed.flare.private_flare import AppDeployer  # noqa: F401
    use, tested = f"'AppDeployer' of {wanted.module} for: {wanted.reason}", f"with NVFlare {private_flare.TESTED}"
    assert all(words in str(caught.value) for words in (use, missing, tested))
