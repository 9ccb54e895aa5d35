"""A class name occurs once in the package, so that a name in a message, a YAML or a search means one thing."""

import ast
from collections import defaultdict
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGES = [CHECKOUT / "custom" / "fedmed", CHECKOUT / "custom" / "fedmed_demo", CHECKOUT / "research"]


def test_no_two_classes_have_the_same_name():
    found = defaultdict(list)
    for path in sorted(path for package in PACKAGES for path in package.rglob("*.py")):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(str(path.relative_to(CHECKOUT)))
    assert len(found) > 500
    assert {name: paths for name, paths in found.items() if len(paths) > 1} == {}
