"""Every command says what it does, and at once: nobody waits for PyTorch to read how one is called."""

import subprocess
import sys

import pytest

import fedmed as fedmed_package
from fedmed.commands.command_line import main
from tests.commands import every_command, fedmed

PASSED_ON = {"label serve", "research", "prepare demo"}  # another program shows its own help
COMMANDS = sorted(words for words, _ in every_command() if words not in PASSED_ON)


@pytest.mark.parametrize("words", [["--help"], ["simulate", "--help"]], ids=" ".join)
def test_help_loads_nothing_heavy(words):
    code = "import sys; from fedmed.commands.command_line import main\n"
    code += f"assert main({words}) == 0; print(*sys.modules, file=sys.stderr)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in shown.stderr.split()}
    assert "fedmed" in loaded and not loaded & {
        "numpy",
        "torch",
        "monai",
        "nvflare",
        "matplotlib",
        "pandas",
        "pydantic",
    }


@pytest.mark.parametrize("words", COMMANDS)
def test_help_of_each_command(words, capsys, monkeypatch):
    """Also in a narrow terminal, and without colours where a person wants none."""
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("NO_COLOR", "1")
    assert fedmed(*words.split())(["--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: fedmed {words}" in " ".join(shown.split()) and "\x1b[3" not in shown
    assert max(map(len, shown.splitlines())) <= 50


@pytest.mark.parametrize(
    ("words", "meant"), [("simulat x", "simulate"), ("site chekc", "check"), ("export a b --onx", "--onnx")]
)
def test_a_mistyped_word_gets_the_nearest(words, meant, capsys):
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert meant in said


def test_it_says_its_version(capsys):
    assert main(["--version"]) == 0 and capsys.readouterr().out == f"fedmed {fedmed_package.__version__}\n"


def test_a_full_disk_is_one_line(monkeypatch, capsys):
    def full(folder):
        raise OSError(28, "No space left on device", str(folder))

    monkeypatch.setattr("fedmed.files.purge", full)
    assert main(["site", "purge", "/x"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ") and "'/x'" in said and said.count("\n") == 1


def test_completion_is_there_for_bash_and_zsh(monkeypatch, capsys):
    for shell in ("bash", "zsh"):
        monkeypatch.setenv("_FEDMED_COMPLETE", f"complete_{shell}")
        monkeypatch.setenv("COMP_WORDS", "fedmed si")
        monkeypatch.setenv("COMP_CWORD", "1")
        monkeypatch.setenv("_TYPER_COMPLETE_ARGS", "fedmed si")
        main([])
        assert {"site", "simulate"} <= set(capsys.readouterr().out.replace('"', " ").replace(":", " ").split())
