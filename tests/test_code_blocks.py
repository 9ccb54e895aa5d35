"""Code that pages show is right: YAML for its model, Python by its imports, commands by their own parsers.

Blocks that ``RUN`` names are run too, here or by another test; a page with others says so in its first line. A block of
another kind has a comment before it: ``<!-- not run: reason -->``.
"""

import ast
import json
import re
import shlex
from configparser import ConfigParser
from importlib import import_module
from itertools import groupby
from pathlib import Path
from textwrap import dedent
from typing import Any

import cv2
import numpy as np
import pytest
import torch
import yaml
from typer.main import get_command

from fedmed.errors import FedMedError
from fedmed.jobs.study import Study
from fedmed.settings.server import ServerFile
from fedmed.settings.site import parse_site
from fedmed.settings.site_file import SiteFile
from fedmed.settings.yaml_model import Document, check_model
from research.runner.experiment_table import TableYaml

CHECKOUT = Path(__file__).parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "containers/README.md", "docs/**/*.md", "bundles/*/docs/*.md")
PAGES += ("research/results/*.md",)
BLOCK = re.compile(r"(?ms)^( *<!-- not run: \w[^\n]* -->\n+)?^( *)```([^\n]*)\n(.*?)\n *```$")
CHECKED = "<!-- Blocks of code: checked by tests, not run, but for those named in tests/test_code_blocks.py. -->\n"
HERE = "tests/test_code_blocks.py"
# Page -> how its blocks that a test runs begin, from their language on, and that test.
RUN = {
    "README.md": ("bash\nsource .venv/bin/activate && export FEDMED_HOME=", "tests/e2e/test_readme.py"),
    "docs/data/video.md": ("python\n", HERE),
    "docs/methods/tecno.md": ("python\n", HERE),
    "docs/recipe.md": ("python\n", "tests/flare/test_recipe.py"),
}
# What a block that shows some keys of a file leaves out.
STUDY = {"name": "study", "bundle": "covid_ct_segmentation", "method": {"path": "fedmed.methods.method.Method"}}
STUDY |= {"sites": {"site_1": "supervised"}, "rounds": 1, "steps": 1}
TABLE = {"title": "table", "data": "demo", "seeds": [0], "chain": {"training": {}}, "arms": {"a": {"x": 1}}}
TABLE |= {"scores": {"dice": {}}, "layout": {}}
LEFT_OUT = {SiteFile: {}, ServerFile: {}, Study: STUDY, TableYaml: TABLE}
# Programs that are not FedMed's: what they take is said by their own pages.
OTHERS = {"cd", "cp", "curl", "export", "ffmpeg", "gpg", "grep", "nvflare", "printf", "source", "ssh", "tail", "tar"}
OTHERS |= {"awk", "mkdir", "podman", "podman-compose", "python3.11", "sha256sum", "sudo", "tensorboard"}


def pages() -> dict[str, str]:
    """Path -> text of each page."""
    found = sorted({page for pattern in PAGES for page in CHECKOUT.glob(pattern)})
    return {str(page.relative_to(CHECKOUT)): page.read_text(encoding="utf-8") for page in found}


def blocks_of(text: str) -> list[tuple[int, str, str]]:
    """(line, language, content) of each block of a page that has no comment of its own."""
    shown = (found for found in BLOCK.finditer(text) if not found[1] and not found[3].startswith("{"))  # Sphinx's own
    return [(text.count("\n", 0, one.start(4)), one[3], dedent(one[2] + one[4])) for one in shown]


def run_blocks(page: str, text: str) -> list[str]:
    """Contents of the blocks of a page that ``RUN`` names."""
    begin = RUN[page][0] if page in RUN else None
    return [content for _, name, content in blocks_of(text) if begin and f"{name}\n{content}".startswith(begin)]


def blocks() -> list[Any]:
    return [
        pytest.param(language, content, id=f"{page}:{line}")
        for page, text in pages().items()
        for line, language, content in blocks_of(text)
    ]


def check_yaml(text: str, folder: Path) -> None:
    """A key that comes again is another choice: each is tried with all other keys."""
    entries = [yaml.safe_load(part) or {} for part in re.split(r"(?m)^(?=[\w-]+:)", text)]
    together = {key: value for entry in entries for key, value in entry.items()}
    model = next((model for model in LEFT_OUT if set(together) <= set(model.model_fields)), None)
    assert model, f"{sorted(together)} are not keys of one file of FedMed"
    for entry in entries:
        values = LEFT_OUT[model] | together | entry
        if "data_root" in model.model_fields:  # what a page shows does not exist here
            parse_site("site_1", values | {"data_root": str(folder)}, folder / "site_1.yaml")
        else:
            check_model(Document("this block", values), model, error=FedMedError)
    for module, name in re.findall(r"\bpath: ([\w.]+)\.(\w+)", text):
        assert hasattr(import_module(module), name), f"{module}.{name}"


def check_python(text: str, folder: Path) -> None:
    for node in ast.walk(ast.parse(text)):
        for alias in node.names if isinstance(node, ast.ImportFrom) else ():
            assert hasattr(import_module(node.module), alias.name), f"{node.module}.{alias.name}"


def check_bash(text: str, folder: Path) -> None:
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, punctuation_chars="();&|>", posix=True)
        words.whitespace_split = True
        # What a command's output is written to is not an argument of it.
        kept = re.sub(r"\n[&>]*>[&>]*\n[^\n]*", "", "\n".join(words)).split("\n")
        for operator, command in groupby(kept, lambda word: set(word) <= set("();&|")):
            if not operator:
                check_command(list(command))


def check_command(words: list[str]) -> None:
    while words and re.match(r"\w+=", words[0]):
        words = words[1:]
    if not words or words[0] in OTHERS or words[:3] == ["python", "-m", "monai.bundle"]:
        return
    if words[0] == "fedmed":
        parses(words)
        return
    program = words[1] if words[0] == "python" else words[0]
    path = CHECKOUT / program.removeprefix("FEDMED/")
    assert path.is_file(), f"{program} is no file of the checkout, and not named among OTHERS"


def parses(words: list[str]) -> None:
    """Let the parser of a ``fedmed`` command read the words after it, and run nothing.

    Raises:
        Exception: of Typer: no such command, option or choice; an argument that is missing, or is one too many.
    """
    module = "fedmed.commands.command_line"
    if words[1:2] == ["research"]:  # a program of its own
        module, words = "research.__main__", words[1:]
    elif words[1:3] == ["prepare", "demo"]:
        module, words = "fedmed_demo.__main__", words[2:]
    command, context, (name, *rest) = get_command(import_module(module).app), None, words
    while hasattr(command, "commands"):
        context = command.context_class(command, info_name=name, parent=context)
        name, command, rest = command.resolve_command(context, rest)
    command.make_context(name, rest, parent=context)


def check_ini(text: str, folder: Path) -> None:
    ConfigParser(strict=False).read_string(text)


def check_json(text: str, folder: Path) -> None:
    json.loads(text)


def check_nothing(text: str, folder: Path) -> None:
    """A text that is no code."""


CHECKS = {
    "yaml": check_yaml,
    "python": check_python,
    "json": check_json,
    "bash": check_bash,
    "ini": check_ini,
    "text": check_nothing,
}


@pytest.mark.parametrize(("language", "text"), blocks())
def test_a_block_is_right(language, text, tmp_path):
    assert language in CHECKS, f"say what the block is ({', '.join(CHECKS)}), or why it is not run"
    CHECKS[language](text, tmp_path)


@pytest.mark.parametrize(("page", "text"), pages().items(), ids=pages())
def test_a_page_says_that_its_blocks_are_not_run(page, text):
    shown, run = blocks_of(text), run_blocks(page, text)
    said = f"begin it with {CHECKED!r}, or name in RUN what runs its blocks; leave that line out where none is left"
    assert text.startswith(CHECKED) == (len(run) < len(shown)), said
    assert (page in RUN) == bool(run), "RUN names blocks that the page has"
    assert page not in RUN or Path(page).name in (CHECKOUT / RUN[page][1]).read_text(encoding="utf-8")


def test_the_page_of_videos_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    writer = cv2.VideoWriter("a.mp4", cv2.VideoWriter_fourcc(*"mp4v"), 1, (64, 48))
    Path("frames_of_b").mkdir()
    for second in range(16):
        writer.write(frame := np.full((48, 64, 3), 10 * second + 50, np.uint8))
        cv2.imwrite(f"frames_of_b/{second}.png", frame)
    writer.release()
    listed = "".join(f"{second}.png,{second}\n" for second in range(16))
    Path("frames_of_b/frames.csv").write_text("file,second\n" + listed)
    shown = execute("docs/data/video.md", cache_dir=tmp_path / "cache")
    assert shown["batch"]["image"].shape == (2, 16, 3, 224, 224) and set(shown["batch"]["video"].tolist()) <= {0, 1}


def test_the_page_of_tecno_runs_as_it_stands(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("clock").mkdir()
    tensors = {"features.conv.weight": torch.ones(2), "features.bn.running_var": torch.ones(2)}
    torch.save({"model": tensors}, "best_FL_global_model.pt")
    execute("docs/methods/tecno.md", torch=torch)
    written = torch.load("clock/best_FL_global_model.pt", weights_only=True)["model"]
    assert [tensor.tolist() for tensor in written.values()] == [[0, 0], [1, 1]]


def execute(page: str, **variables: object) -> dict[str, Any]:
    """Run the blocks of a page one after the other; what the page says before them is given. Returns its variables."""
    for content in run_blocks(page, pages()[page]):
        exec(content, variables)
    return variables
