#!/usr/bin/env python3
"""Count of 40 small faults, put into the code one at a time, that the tests find.

    python benchmarks/mutations.py                 # all rooms, some 40 minutes on two cores
    python benchmarks/mutations.py losses jobs     # 8 faults each

A fault is another operator, another bound, a clone left out, or another order. Those of a room with the smallest
hashes are taken, so that another commit whose code says the same has the same faults. Each goes into a copy of the
checkout, in which the room's own tests run until one fails. A fault that changes nothing that can be seen survives
rightly, so the number is compared with that of an earlier commit, not with 40.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
TESTS = {  # room -> folders of tests
    "losses": ["losses", "training"],
    "aggregation": ["aggregation"],
    "federation": ["federation", "recovery"],
    "privacy": ["privacy", "flare"],
    "jobs": ["jobs", "scripts/test_package_job.py"],
}
EACH, SECONDS = 8, 3600
Fault = tuple[Path, ast.expr, str]  # file, expression, and the text that takes its place
SWAPPED = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}


def mutated(node: ast.expr) -> ast.expr | None:
    """The expression with one fault; None where there is none to make. ``|`` of types is no operator here."""
    if isinstance(node, ast.BinOp) and (other := SWAPPED.get(type(node.op))):
        return (
            None if isinstance(node.left, ast.Constant | ast.JoinedStr) else ast.BinOp(node.left, other(), node.right)
        )
    if isinstance(node, ast.Compare) and (other := SWAPPED.get(type(node.ops[0]))):
        return ast.Compare(node.left, [other(), *node.ops[1:]], node.comparators)
    if isinstance(node, ast.BoolOp):
        return ast.BoolOp(SWAPPED[type(node.op)](), node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("clone", "detach"):
        return node.func.value
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "sorted":
        return ast.Call(ast.Name("list"), [ast.Call(ast.Name("reversed"), [node], [])], [])
    return None


def faults(room: str) -> list[Fault]:
    """Faults of a room: file, expression, and the text that takes its place; each text once."""
    by_hash = {}
    for path in sorted((CHECKOUT / "custom/fedmed" / room).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.expr) and node.lineno == node.end_lineno and (fault := mutated(node)) is not None:
                text = f"({ast.unparse(ast.fix_missing_locations(fault))})"
                by_hash.setdefault(sha256(text.encode()).digest(), (path.relative_to(CHECKOUT), node, text))
    return [by_hash[key] for key in sorted(by_hash)[:EACH]]


def killed(room: str, fault: Fault | None) -> bool:
    """True where a test fails in a copy of the checkout with the fault; None: without any."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "checkout"
        ignored = shutil.ignore_patterns(".git", ".venv", "__pycache__", "scores", "node_modules")
        shutil.copytree(CHECKOUT, copy, ignore=ignored, symlinks=True)
        if fault:
            path, node, text = fault
            lines = (copy / path).read_text().encode().split(b"\n")
            line = lines[node.lineno - 1]
            lines[node.lineno - 1] = line[: node.col_offset] + text.encode() + line[node.end_col_offset :]
            (copy / path).write_bytes(b"\n".join(lines))
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-m", "not slow", "-p", "no:cacheprovider"]
        environment = {**os.environ, "PYTHONPATH": str(copy / "custom"), "OMP_NUM_THREADS": "1"}
        tests = [f"tests/{one}" for one in TESTS[room]]
        try:
            done = subprocess.run([*command, *tests], cwd=copy, env=environment, capture_output=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return True  # it hangs, which nobody overlooks
        return done.returncode not in (0, 5)


def tried(rooms: list[str]) -> Iterator[tuple[str, str, bool]]:
    """Room, the fault in words, and whether a test found it.

    Exits where the tests of a room fail without a fault: they would find each.
    """
    chosen = [(room, fault) for room in rooms for fault in faults(room)]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        fails = pool.map(lambda room: killed(room, None), rooms)
        failing = [room for room, failed in zip(rooms, fails, strict=True) if failed]
        if failing:
            sys.exit(f"the tests of {', '.join(failing)} fail without a fault: mend them first")
        for (room, fault), kill in zip(chosen, pool.map(lambda one: killed(*one), chosen), strict=True):
            path, node, text = fault
            yield room, f"{path}:{node.lineno}: {ast.unparse(node)} -> {text}", kill


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(TESTS)}; by default all")
    rooms = parser.parse_args().rooms or list(TESTS)
    if unknown := set(rooms) - set(TESTS):
        parser.error(f"no room {min(unknown)}; there are {', '.join(TESTS)}")
    counts = dict.fromkeys(rooms, 0)
    for room, fault, kill in tried(rooms):
        counts[room] += kill
        print("found   " if kill else "survived", fault, flush=True)
    print(", ".join(f"{room} {n} of {EACH}" for room, n in counts.items()))
    print(f"{sum(counts.values())} of {EACH * len(rooms)} faults found")


if __name__ == "__main__":
    main()
