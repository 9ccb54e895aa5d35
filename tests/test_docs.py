"""Links of the documentation lead somewhere, and the first page is short."""

import re
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml

CHECKOUT = Path(__file__).parents[1]
FOLDERS = ("docs", "bundles", "containers", "examples", "site_configs", "benchmarks")
PAGES = sorted({*CHECKOUT.glob("*.md"), *(page for folder in FOLDERS for page in (CHECKOUT / folder).rglob("*.md"))})
LINK = re.compile(r"\]\(([^)\s]+)\)")


@cache
def anchors(page: Path) -> set[str]:
    """Names that a page's headings have at GitHub."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    result: set[str] = set()
    for title in re.findall(r"(?m)^#+ (.*)$", text):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        name = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        result.add(next(n for n in [name, *(f"{name}-{i}" for i in range(1, 50))] if n not in result))
    return result


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(CHECKOUT)))
def test_links_lead_somewhere(page):
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text(encoding="utf-8"))
    for link in LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or target.suffix != ".md" or anchor in anchors(target), f"{link}: no such heading"


def test_the_first_page_is_short():
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 900
    assert text.index("scripts/demo.sh") < 1200, "the first command is on the first screen"


def test_the_citation_names_the_version_of_the_package():
    citation = yaml.safe_load((CHECKOUT / "CITATION.cff").read_text(encoding="utf-8"))
    package = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (citation["version"], citation["license"]) == (package["version"], package["license"])
