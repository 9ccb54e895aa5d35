"""label.sh in a checkout whose Python and pip only write down what they are asked."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LOCK = f"label-{sys.platform}-{platform.machine()}".lower()
# `python -c 'import torchvision'` fails until the operators are declared, as beside a CPU build of torch.
PYTHON = f"""#!/usr/bin/env bash
here=$(dirname "$(dirname "$0")")
case "$*" in
"-m venv"*) mkdir -p "${{@: -1}}/bin" "${{@: -1}}/site" && touch "${{@: -1}}/pyvenv.cfg"
    cp "$0" "${{@: -1}}/bin/python" && cp "$0" "${{@: -1}}/bin/pip" ;;
"-m pip"*) echo "$*" >>"$CALLS" && sleep "${{PIP_SECONDS:-0}}" && exit "${{PIP_EXIT:-0}}" ;;
*"import torchvision") [[ -n ${{TORCHVISION:-}} || -f $here/site/fedmed_torchvision.pth ]] ;;
*find_spec*) exit "${{CUDA_BUILD:-1}}" ;;
*metadata*) echo 0 ;;
*torch.version*) exit "${{CUDA_TORCH:-0}}" ;;
*purelib*) echo "$here/site" ;;
*serve.py*) echo "$PYTHONPATH" >>"$CALLS" && echo "$*" >>"$CALLS" ;;
*ensurepip*) exit "${{NO_ENSUREPIP:-0}}" ;;
*version_info*) exit "${{WRONG_PYTHON:-0}}" ;;
--version) echo "Python 3.13.1" ;;
*) exec {sys.executable} "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout in a path with a space."""
    root = tmp_path / "check out"
    (root / "scripts").mkdir(parents=True)
    shutil.copy2(ROOT / "scripts" / "label.sh", root / "scripts")
    shutil.copytree(ROOT / "monailabel_app" / "environment", root / "monailabel_app" / "environment")
    (root / "locks").mkdir()
    for name in ("install.sh", "label-source.txt"):
        shutil.copy2(ROOT / "locks" / name, root / "locks")
    for part in ("", "-torch", "-cuda"):
        (root / "locks" / f"{LOCK}{part}.txt").write_text("torch==2.13.0 \\\n    --hash=sha256:00\n")
    python = tmp_path / "a python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return root


def variables(checkout, **more):
    base = checkout.parent
    known = {"PYTHON": str(base / "a python"), "FEDMED_LABEL_ENV": str(base / "an env"), "CALLS": str(base / "calls")}
    return {**os.environ, **known, **more}


def run(checkout, *arguments, **more):
    """Run label.sh from another folder."""
    command = [str(checkout / "scripts" / "label.sh"), *arguments]
    settings = variables(checkout, **more)
    return subprocess.run(command, cwd="/", env=settings, capture_output=True, text=True, timeout=600)


def calls(checkout):
    path = checkout.parent / "calls"
    return path.read_text().splitlines() if path.exists() else []


def test_the_environment_is_made_once(checkout):
    first = run(checkout, "--setup")
    assert first.returncode == 0, first.stderr
    assert "making" in first.stderr and "is up to date" in first.stderr
    made = calls(checkout)
    installed = [line for line in made if " install " in line]
    assert [line.rpartition("/")[2] for line in installed] == [f"{LOCK}.txt", f"{LOCK}-torch.txt", "label-source.txt"]
    assert all("--require-hashes --no-deps" in line for line in installed)
    again = run(checkout, "--setup")
    assert again.stderr.count("\n") == 1 and "is up to date" in again.stderr and calls(checkout) == made


def test_one_may_do_without_hashes_and_is_told(checkout):
    made = run(checkout, "--setup", FEDMED_LOCK="none")
    assert made.returncode == 0 and "is not pinned" in made.stderr
    assert [line.rpartition("/")[2] for line in calls(checkout)] == ["from_source.txt", "without_dependencies.txt"]


def test_a_build_of_torch_for_gpus_gets_what_it_needs(checkout):
    run(checkout, "--setup", CUDA_BUILD="0")
    assert any(line.endswith(f"{LOCK}-cuda.txt") for line in calls(checkout))


def test_it_lies_in_the_users_cache_by_default(checkout):
    cache = str(checkout.parent / "cache")
    assert run(checkout, "--setup", FEDMED_LABEL_ENV="", XDG_CACHE_HOME=cache).returncode == 0
    assert (Path(cache) / "fedmed" / "label-env" / "fedmed-stamp").is_file()


def test_arguments_go_to_the_launcher_with_both_packages_on_the_path(checkout):
    assert run(checkout, "my studies", "bundle", "--port", "8123").returncode == 0
    path, launched = calls(checkout)[-2:]
    assert path == f"{checkout}/custom:{checkout}/monailabel_app"
    assert launched == f"{checkout}/monailabel_app/serve.py my studies bundle --port 8123"


def test_it_is_updated_when_what_it_was_made_from_changes(checkout):
    run(checkout, "--setup")
    once = len(calls(checkout))
    for times, name in enumerate(("requirements.txt", "from_source.txt", "torchvision_operators.py"), start=2):
        with (checkout / "monailabel_app" / "environment" / name).open("a") as file:
            file.write("# other\n")
        again = run(checkout, "--setup")
        assert "updating" in again.stderr and "making" not in again.stderr, name
        assert len(calls(checkout)) == times * once, name


def test_torchvision_gets_its_operators_beside_a_cpu_torch_only(checkout):
    site = checkout.parent / "an env" / "site"
    run(checkout, "--setup", TORCHVISION="works")
    assert not list(site.iterdir())
    shutil.rmtree(site.parent)
    assert run(checkout, "--setup").returncode == 0
    assert {path.name for path in site.iterdir()} == {"fedmed_torchvision.pth", "torchvision_operators.py"}
    shutil.rmtree(site.parent)
    broken = run(checkout, "--setup", CUDA_TORCH="1")
    assert broken.returncode == 2 and "torchvision does not fit torch" in broken.stderr and not list(site.iterdir())


def test_a_failed_install_is_said_and_done_again(checkout):
    failed = run(checkout, "--setup", PIP_EXIT="1")
    assert failed.returncode == 2 and "error: pip failed" in failed.stderr and "run this again" in failed.stderr
    assert not any("serve.py" in call for call in calls(checkout))
    again = run(checkout, "--setup")
    assert again.returncode == 0 and "updating" in again.stderr


def test_two_setups_at_a_time_install_once(checkout):
    if not shutil.which("flock"):
        pytest.skip("needs flock")
    command = [str(checkout / "scripts" / "label.sh"), "--setup"]
    slow = variables(checkout, PIP_SECONDS="0.7")
    both = [subprocess.Popen(command, env=slow, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=600)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(calls(checkout)) == 4 and any("waiting for another set-up" in output for output in outputs)


def test_a_moved_environment_is_made_anew(checkout):
    run(checkout, "--setup")
    (checkout.parent / "an env").rename(checkout.parent / "moved")
    assert "making" in run(checkout, "--setup", FEDMED_LABEL_ENV=str(checkout.parent / "moved")).stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"NO_ENSUREPIP": "1"}, "python3-venv is missing"),
        ({"WRONG_PYTHON": "1"}, "needs Python 3.11 or 3.12; "),
        ({"PYTHON": "/nowhere/python"}, "'/nowhere/python' is not there"),
        ({"FEDMED_LABEL_ENV": "/dev/null/env"}, "set FEDMED_LABEL_ENV to a folder of yours"),
    ],
)
def test_what_keeps_it_from_being_made_is_said(checkout, more, words):
    result = run(checkout, "--setup", **more)
    assert result.returncode == 2 and words in result.stderr and not calls(checkout)


def test_a_folder_in_the_way_is_left_alone(checkout):
    place = checkout.parent / "an env"
    place.mkdir()
    (place / "thesis.txt").write_text("mine")
    result = run(checkout, "--setup")
    assert result.returncode == 2 and "is not a virtual environment" in result.stderr
    assert (place / "thesis.txt").read_text() == "mine"


def test_help_sets_nothing_up(checkout):
    result = run(checkout, "--help")
    assert result.returncode == 0 and "STUDIES BUNDLE" in result.stdout and "--stock" in result.stdout
    assert run(checkout).returncode == 2 and not calls(checkout)
