"""Names and docstrings: a class name occurs once, and a docstring begins with a noun or a verb."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = [CHECKOUT / "custom" / "fedmed", CHECKOUT / "custom" / "fedmed_demo", CHECKOUT / "research"]
OTHERS = [CHECKOUT / "benchmarks", CHECKOUT / "bundles", CHECKOUT / "monailabel_app", CHECKOUT / "scripts"]
QUESTIONS = ("What ", "How ", "Which ", "Whether ", "Where ", "When ", "Who ", "Whose ", "Why ", "That ", "If ")
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def documented(node: ast.AST) -> Iterator[ast.AST]:
    """What may have a docstring, in a file and in the blocks of its statements; no expression has one."""
    if isinstance(node, DOCUMENTED):
        yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield from documented(child)


def test_no_two_classes_have_the_same_name():
    """A name in a message, a YAML or a search then means one thing."""
    result = defaultdict(list)
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        for node in parsed(path).body:
            if isinstance(node, ast.ClassDef):
                result[node.name].append(str(path.relative_to(CHECKOUT)))
    assert len(result) > 500
    assert {name: paths for name, paths in result.items() if len(paths) > 1} == {}


def test_a_docstring_begins_with_a_noun_or_a_verb():
    texts = [
        (path, (ast.get_docstring(node, clean=False) or "").lstrip())
        for path in sorted(path for folder in (*PACKAGES, *OTHERS) for path in folder.rglob("*.py"))
        for node in documented(parsed(path))
    ]
    assert len(texts) > 4000
    assert [f"{path.relative_to(CHECKOUT)}: {text[:60]}" for path, text in texts if text.startswith(QUESTIONS)] == []
