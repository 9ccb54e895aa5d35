"""The shell scripts of a checkout whose Python and pip only write down what they are asked."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ("scripts/setup.sh", "scripts/lint.sh", "scripts/docs.sh", "scripts/test.sh", "scripts/demo.sh", ".ci/run")
PLATFORM = f"{sys.platform}-{platform.machine()}".lower()
PYTHON = f"""#!/usr/bin/env bash
case "$*" in
"-m venv"*) b=${{@: -1}}/bin && mkdir -p "$b" && touch "$b/../pyvenv.cfg" && cp "$0" "$b/python" && cp "$0" "$b/pip" ;;
"-c import sysconfig"*) echo packages && mkdir -p packages ;;
"-m sphinx"*) exit "${{DOCS_EXIT:-0}}" ;;
"-m pip"*) echo "$*" >>calls && cat pip_says 2>/dev/null; sleep "${{PIP_SECONDS:-0}}" && exit "${{PIP_EXIT:-0}}" ;;
"-m ruff"* | "-m mypy"* | locks/dependencies.py*) echo "$*" >>calls && [[ "$*" != "${{LINT_FAILS:-nothing}}" ]] ;;
"-m pytest"* | *fedmed*) echo "$*" >>calls && echo "threads $OMP_NUM_THREADS" >>calls && exit "${{TESTS_EXIT:-0}}" ;;
*torch*) [[ "$*" == *cuda* ]] && exit "${{CUDA_TORCH:-1}}" || echo "${{TORCH:-0}}" ;;
*ensurepip*) exit "${{NO_ENSUREPIP:-0}}" ;;
*version_info*) exit "${{OLD_PYTHON:-0}}" ;;
--version) echo "Python 3.9.2" ;;
*) exec {sys.executable} "$@" ;;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    """A checkout in a path with a space."""
    root = tmp_path / "check out"
    for script in SCRIPTS:
        (root / script).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / script, root / script)
    (root / "locks").mkdir()
    shutil.copy2(ROOT / "locks" / "install.sh", root / "locks")
    (root / "requirements.txt").write_text("numpy\n")
    (root / "requirements-dev.txt").write_text("ruff\n")
    (root / "docs").mkdir()
    (root / "docs" / "requirements.txt").write_text("sphinx\n")
    (root / "pyproject.toml").write_text("[project]\n")
    python = tmp_path / "a python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    return root


def environment(checkout, **variables):
    return {**os.environ, "PYTHON": str(checkout.parent / "a python"), **variables}


def run(checkout, script, *arguments, **variables):
    """Run a script of the checkout from another folder."""
    command = [str(checkout / script), *arguments]
    return subprocess.run(
        command, cwd="/", env=environment(checkout, **variables), capture_output=True, text=True, timeout=600
    )


def calls(checkout):
    path = checkout / "calls"
    return path.read_text().splitlines() if path.exists() else []


def ran(checkout):
    """Calls of other programs than pip."""
    return [call for call in calls(checkout) if not call.startswith("-m pip")]


@pytest.mark.parametrize("script", [*SCRIPTS, "scripts/label.sh"])
def test_scripts_can_be_executed_and_parsed(script):
    assert os.access(ROOT / script, os.X_OK), f"chmod +x {script}"
    assert subprocess.run(["bash", "-n", str(ROOT / script)]).returncode == 0


def test_setup_makes_the_environment_once(checkout):
    first = run(checkout, "scripts/setup.sh")
    assert first.returncode == 0, first.stderr
    assert "making .venv" in first.stdout and "done: source .venv/bin/activate" in first.stdout
    assert len(calls(checkout)) == 1 and calls(checkout)[0].endswith("-r requirements.txt -e .")
    second = run(checkout, "scripts/setup.sh")
    assert second.stdout == "setup: .venv is up to date\n"
    assert len(calls(checkout)) == 1


def test_tools_for_changes_come_only_when_they_are_asked_for(locked):
    (locked / "locks" / f"dev-{PLATFORM}.txt").write_text("ruff==0.17.5 \\\n    --hash=sha256:00\n")
    run(locked, "scripts/setup.sh")
    before = len(calls(locked))
    assert not [call for call in calls(locked) if "/dev-" in call]
    assert "installing dev-" in run(locked, "scripts/setup.sh", "--dev").stdout
    assert [call.rpartition("/")[2] for call in calls(locked)[before:]] == [f"dev-{PLATFORM}.txt"]
    for more in ([], ["--dev"]):
        assert run(locked, "scripts/setup.sh", *more).stdout == "setup: .venv is up to date\n"


def test_setup_updates_when_the_requirements_change(locked):
    run(locked, "scripts/setup.sh")
    for changed in ("requirements.txt", "pyproject.toml", f"locks/{PLATFORM}.txt"):
        before = len(calls(locked))
        (locked / changed).write_text("numpy==2.4.7 --hash=sha256:11\n")
        again = run(locked, "scripts/setup.sh")
        assert "updating .venv" in again.stdout and "making .venv" not in again.stdout, changed
        assert len(calls(locked)) > before, changed


HASHED = "--require-hashes --no-deps --only-binary :all:"


@pytest.fixture
def locked(checkout):
    """The checkout with the lock files of this platform."""
    for part in ("", "-torch", "-cuda"):
        (checkout / "locks" / f"{PLATFORM}{part}.txt").write_text("torch==2.13.0 \\\n    --hash=sha256:00\n")
    return checkout


@pytest.mark.parametrize(("cuda", "files"), [("1", ["", "-torch"]), ("0", ["", "-torch", "-cuda"])])
def test_setup_installs_what_the_lock_files_name_and_nothing_else(locked, cuda, files):
    done = run(locked, "scripts/setup.sh", CUDA_TORCH=cuda)
    assert done.returncode == 0 and "requirements.txt" not in done.stdout
    *installs, package = [line for line in calls(locked) if " install " in line]
    assert [
        line.endswith(f"-r {locked}/locks/{PLATFORM}{part}.txt") for line, part in zip(installs, files, strict=True)
    ]
    assert all(HASHED in line for line in installs) and package.endswith("--no-deps --no-build-isolation -e .")
    assert "--no-index --find-links" in installs[1], "the file that was fetched is the one that is installed"
    assert [line for line in calls(locked) if " download " in line][0].endswith("torch==2.13.0")


def test_a_torch_that_fits_is_not_fetched_again(locked):
    run(locked, "scripts/setup.sh", TORCH="2.13.0")
    assert not [line for line in calls(locked) if " download " in line or "-torch.txt" in line]


def test_one_may_do_without_hashes_and_is_told(locked):
    done = run(locked, "scripts/setup.sh", FEDMED_LOCK="none")
    assert "is not pinned" in done.stdout and calls(locked)[0].endswith("-r requirements.txt -e .")


def test_a_failed_install_is_said_and_done_again(checkout):
    failed = run(checkout, "scripts/setup.sh", PIP_EXIT="1")
    assert failed.returncode == 1 and "pip failed" in failed.stderr and "run this again" in failed.stderr
    again = run(checkout, "scripts/setup.sh")
    assert again.returncode == 0 and "updating .venv" in again.stdout and len(calls(checkout)) == 2


def test_of_pips_many_lines_few_are_shown_and_all_are_kept(checkout):
    lines = [f"Collecting package{i}" for i in range(120)] + ["Installing collected packages: a, b", "Downloading a"]
    (checkout / "pip_says").write_text("\n".join([*lines, "Successfully installed a-1 b-2 c-3"]) + "\n")
    made = run(checkout, "scripts/setup.sh")
    assert made.returncode == 0 and made.stdout.splitlines()[3:-1] == [
        "setup: 50 packages found", "setup: 100 packages found", "setup: unpacking, a minute or two",
        "setup: 3 packages installed",
    ]  # fmt: skip
    assert (checkout / ".venv/pip.log").read_text() == (checkout / "pip_says").read_text()


def test_a_moved_checkout_gets_a_new_environment(checkout):
    """The scripts in .venv/bin hold absolute paths."""
    run(checkout, "scripts/setup.sh")
    moved = checkout.rename(checkout.with_name("moved"))
    assert "making .venv" in run(moved, "scripts/setup.sh").stdout


def test_a_damaged_environment_is_made_anew(checkout):
    run(checkout, "scripts/setup.sh")
    (checkout / ".venv/bin/python").unlink()
    assert "making .venv" in run(checkout, "scripts/setup.sh").stdout


def test_two_setups_at_a_time_install_once(checkout):
    if not shutil.which("flock"):
        pytest.skip("needs flock")
    command, variables = [str(checkout / "scripts/setup.sh")], environment(checkout, PIP_SECONDS="1.5")
    both = [subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=600)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert len(calls(checkout)) == 1 and any("waiting for another set-up" in output for output in outputs)


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("NO_ENSUREPIP", "1", ("python3-venv is missing", "sudo apt install python3-venv")),
        ("OLD_PYTHON", "1", ("needs Python 3.11 or newer", "is Python 3.9.2")),
        ("PYTHON", "/nowhere/python", ("'/nowhere/python' is not there",)),
    ],
)
def test_what_keeps_the_environment_from_being_made_is_said_plainly(checkout, variable, value, words):
    result = run(checkout, "scripts/setup.sh", **{variable: value})
    assert result.returncode == 1 and not (checkout / ".venv").exists()
    assert all(word in result.stderr for word in words)


def test_a_folder_in_the_way_is_left_alone(checkout):
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / "thesis.txt").write_text("mine")
    result = run(checkout, "scripts/setup.sh")
    assert result.returncode == 1 and "is not a virtual environment" in result.stderr
    assert (checkout / ".venv" / "thesis.txt").read_text() == "mine"


def test_the_environment_of_another_checkout_is_left_alone(checkout, tmp_path):
    other = tmp_path / "other" / ".venv"
    other.mkdir(parents=True)
    (other / "fedmed-stamp").write_text(f"digest {other.parent}\n")
    (checkout / ".venv").symlink_to(other)
    result = run(checkout, "scripts/setup.sh")
    assert result.returncode == 1 and "is a link to the environment of another checkout" in result.stderr
    assert (other / "fedmed-stamp").is_file()


def test_a_linked_environment_of_this_checkout_is_made_anew(checkout, tmp_path):
    disk = tmp_path / "large disk"
    disk.mkdir()
    (disk / "fedmed-stamp").write_text(f"digest {checkout}\n")
    (disk / "pyvenv.cfg").touch()
    (checkout / ".venv").symlink_to(disk)
    assert run(checkout, "scripts/setup.sh").returncode == 0 and (disk / "bin" / "python").is_file()


LINT = ["-m ruff check .", "-m ruff format --check .", "-m mypy", "locks/dependencies.py check"]


@pytest.mark.parametrize(("script", "before"), [("scripts/test.sh", []), (".ci/run", LINT)])
def test_tests_run_without_the_slow_ones(checkout, script, before):
    (checkout / "tests" / "losses").mkdir(parents=True, exist_ok=True)
    assert run(checkout, script, "tests/losses", "-x", OMP_NUM_THREADS="3").returncode == 0
    assert ran(checkout) == [*before, "-m pytest -m not slow tests/losses -x", "threads 3"]


@pytest.mark.parametrize("check", LINT)
def test_one_failed_check_fails_lint_after_all_have_run(checkout, check):
    result = run(checkout, "scripts/lint.sh", LINT_FAILS=check)
    assert result.returncode == 1 and ran(checkout) == LINT
    assert f"lint: {check.removeprefix('-m ')} failed" in result.stderr


def test_a_failed_check_fails_ci_after_the_tests_and_so_does_a_failed_test(checkout):
    assert run(checkout, ".ci/run", LINT_FAILS=LINT[0]).returncode == 1
    assert calls(checkout)[-2].startswith("-m pytest")
    assert run(checkout, ".ci/run", TESTS_EXIT="3").returncode == 3
    assert run(checkout, ".ci/run", DOCS_EXIT="2").returncode == 2


def test_all_adds_the_slow_ones(checkout):
    workers = min(4, os.cpu_count() + 1)
    result = run(checkout, "scripts/test.sh", "-k", "dice", "--all")
    assert f"running all tests in {workers} processes with 1 thread(s)" in result.stdout
    assert ran(checkout)[0] == f"-m pytest -n {workers} --dist loadfile --no-loadscope-reorder -k dice"


def test_one_test_runs_in_one_process(checkout):
    (checkout / "tests" / "losses").mkdir(parents=True, exist_ok=True)
    (checkout / "tests" / "losses" / "test_dice.py").touch()
    run(checkout, "scripts/test.sh", "tests/losses/test_dice.py::test_worked_out_by_hand")
    assert ran(checkout)[0] == "-m pytest -m not slow tests/losses/test_dice.py::test_worked_out_by_hand"


def test_the_demo_simulates_the_job_and_passes_arguments_on(checkout):
    assert run(checkout, "scripts/demo.sh", "--threads", "2").returncode == 0
    assert ran(checkout)[0] == "-m fedmed demo --threads 2"


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != ".ci/run"])
def test_help_sets_nothing_up(checkout, script):
    result = run(checkout, script, "--help")
    assert script in result.stdout and result.returncode == 0
    assert not (checkout / ".venv").exists()


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "scripts/setup.sh"])
def test_nothing_runs_when_the_setup_fails(checkout, script):
    assert run(checkout, script, PIP_EXIT="1").returncode == 1
    assert len(calls(checkout)) == 1
