"""Parts of the documentation's pages that are made of models and commands."""

from pathlib import Path
from typing import Annotated, Literal

import click
import pytest
import typer
from pydantic import BaseModel, Field

EXTENSIONS = Path(__file__).parents[1] / "docs" / "_extensions"


@pytest.fixture(autouse=True)
def extensions(monkeypatch):
    monkeypatch.syspath_prepend(str(EXTENSIONS))


class Inner(BaseModel):
    """What is held."""

    path: str | None = Field(None, description="of <site>, `a|b`")


class Outer(BaseModel):
    rounds: int = Field(ge=1, le=100_000, description="how many")
    rate: float = Field(0.5, gt=0)
    kind: Literal["a", "b", "c"] = "a"
    held: list[Inner] = []
    named: dict[str, Path] = {}


def test_a_table_says_what_each_key_may_be():
    from model_fields import model_tables

    text = model_tables(Outer).replace("\u202f", " ").replace("\u00a0", " ")
    rows = {line.split("`")[1]: line for line in text.splitlines() if line.startswith("| `")}
    assert rows["rounds"] == "| `rounds` | how many | whole number, 1 to 100 000 | *needed* |"
    assert rows["rate"] == "| `rate` |  | number, > 0 | `0.5` |"
    assert rows["kind"] == '| `kind` |  | `a`, `b` or `c` | `"a"` |'
    assert "list of: [Inner](#inner) | `[]`" in rows["held"] and "name → path" in rows["named"]
    assert "## Inner\n\nWhat is held." in text
    assert rows["path"] == "| `path` | of \\<site>, `a\\|b` | text |  |"


def of_click():
    @click.group(help="All of it.")
    def top():
        pass

    @top.command(help="Run JOB.\n\n\b\ntop run x\ntop run y")
    @click.argument("job")
    @click.option("--n", type=int, default=3, show_default=True, help="How many | times.")
    def run(job, n):
        pass

    @top.command(hidden=True)
    def secret():
        pass

    return top


def of_typer():
    app = typer.Typer(help="All of it.", no_args_is_help=True)

    @app.command(help="Run JOB.\n\n\b\ntop run x\ntop run y")
    def run(job: str, n: Annotated[int, typer.Option(help="How many | times.")] = 3):
        pass

    @app.command(hidden=True)
    def secret():
        pass

    return typer.main.get_command(app)


@pytest.mark.parametrize("made", [of_click, of_typer])
def test_each_command_has_a_section_with_its_options(made):
    from command_sections import command_sections

    text = command_sections(made(), "top")
    assert text.startswith("## `top`\n") and "\n### `top run`\n" in text and "secret" not in text
    assert "\nRun JOB.\n\n```bash\ntop run x\ntop run y\n```\n" in text
    assert "| How many \\| times. \\[default: 3\\] |" in text and "help" not in text.lower()
