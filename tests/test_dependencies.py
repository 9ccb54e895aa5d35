"""Dependencies point one way: flare → federation → jobs → systems → training → data; no two systems meet."""

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "custom" / "fedmed"
# Single modules that everything may use.
BASE = {"errors", "files", "durable_files", "seeds", "class_paths", "in_range", "light_imports", "shared_cores"}
BASE |= {"plain_text", "log_records", "yaml_limits", "worker_processes", "site_names", "interrupts", "moved_classes"}
BASE |= {"optional"}
LEAVES = {"losses", "data"}
WORK = {"training", "aggregation", "bundles"}
DESCRIBED = LEAVES | WORK | {"settings", "messages", "methods", "kinds", "jobs"}  # what a run is, before it runs
SHOWN = {"reports"}  # for those that write pages; a kind of task names its report by path
MAY_IMPORT = {
    **dict.fromkeys(LEAVES | BASE, set()),
    "training": LEAVES,
    "aggregation": LEAVES,
    "bundles": LEAVES | {"aggregation", "messages"},
    # A run's method says what is shown of it; resamples of a site's cases are scored as the site scores them.
    "reports": LEAVES | {"training", "bundles", "kinds", "messages", "methods", "settings"},
    "messages": {"aggregation"},
    "settings": {"data"},
    "kinds": {"data", "bundles"},
    "methods": LEAVES | {"training", "aggregation", "messages", "bundles", "settings"},
    "systems": LEAVES | WORK | SHOWN | {"messages", "methods", "settings"},  # named by class path alone
    "jobs": {"data", "aggregation", "bundles", "kinds", "messages", "methods", "settings"},
    "privacy": DESCRIBED | SHOWN,  # the ledger's page
    "recovery": DESCRIBED | {"privacy"},
    "federation": DESCRIBED | {"privacy", "recovery"},
    "flare": DESCRIBED | {"privacy", "recovery", "federation"},
    "provisioning": {"settings", "methods", "jobs", "flare"},
    # Run by scripts and the label app; no part of a federation needs them.
    "export": DESCRIBED | SHOWN | {"recovery", "federation"},
    "adapting": DESCRIBED | SHOWN | {"export"},  # an adapted bundle is written as an exported one
    "labelling": DESCRIBED,
    "checks": DESCRIBED | SHOWN | {"privacy", "recovery", "federation"},
}
MAY_IMPORT["simulation"] = set(MAY_IMPORT) - {"adapting", "export", "labelling", "provisioning"}
MAY_IMPORT["commands"] = MAY_IMPORT["__main__"] = set(MAY_IMPORT) | {"commands"}  # the front door
APART = {"fedmed_demo", "research"}
NVFLARE = {"flare", "provisioning"}  # the only parts that import nvflare
PURE = {"losses", "aggregation"}
IO_MODULES = {
    *("os", "io", "pathlib", "shutil", "tempfile", "glob", "subprocess", "socket", "urllib", "http", "requests"),
    *("json", "yaml", "csv", "pickle", "sqlite3", "nibabel", "itk", "PIL"),
}
IO_CALLS = {"open", "torch.save", "torch.load", "np.save", "np.load", "numpy.save", "numpy.load"}


def last_name(function: ast.expr) -> str:
    """Name of what is called, without what stands before its last dot."""
    return getattr(function, "attr", "") or getattr(function, "id", "")


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All below a node but expressions, which are most of it."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            yield child
            yield from statements(child)


@cache
def imported(source: str, path: Path) -> dict[str, int]:
    """Every module named by an import anywhere in the file, inside functions and by importlib too -> line."""
    result: dict[str, int] = {}
    tree = ast.parse(source, str(path))
    for node in ast.walk(tree) if "import_module" in source or "__import__" in source else statements(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: write imports in full, not relative ones"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and last_name(node.func).endswith(("import_module", "__import__")):
            names = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
        result |= {name: node.lineno for name in names}
    return result


def system_of(parts: list[str]) -> str:
    """Of a path below ``systems``: the folder; an algorithm's or adaptation's file."""
    return "/".join(parts[:2]) if parts[0] in ("algorithms", "adaptations") else parts[0]


def violations(path: Path, package: str, source: str) -> list[str]:
    pure = package in PURE or (package == "systems" and path.name == "loss.py")
    result = []
    for name, line in sorted(imported(source, path).items()):
        top, _, rest = name.partition(".")
        part = rest.partition(".")[0]
        if top == "fedmed" and part in MAY_IMPORT and part not in MAY_IMPORT[package] | BASE | {package}:
            result.append(f"{path}:{line}: {package} may not import fedmed.{part}")
        if package == part == "systems":
            local, other = path.with_suffix("").as_posix().rpartition("systems/")[2], rest.split(".")[1:]
            if system_of(local.split("/")) != system_of(other):
                result.append(f"{path}:{line}: one system may not import another: {name}; what both use goes down")
        if top in APART:
            result.append(f"{path}:{line}: fedmed does without {top}, which a hospital need not install")
        if top == "nvflare" and package not in NVFLARE:
            result.append(f"{path}:{line}: only {' and '.join(sorted(NVFLARE))} may import nvflare")
        if pure and top in IO_MODULES:
            result.append(f"{path}:{line}: {package} does no input or output, but imports {top}")
    nodes = ast.walk(ast.parse(source)) if pure else ()
    if used := {ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)} & IO_CALLS:
        result.append(f"{path}: {package} does no input or output, but calls {', '.join(sorted(used))}")
    return result


def files() -> list[tuple[str, Path]]:
    paths = [path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    return [(path.relative_to(PACKAGE).parts[0].removesuffix(".py"), path) for path in sorted(paths)]


def test_no_two_files_import_one_another():
    """Neither inside functions nor for types alone: then each can be read before those that use it."""
    modules = {".".join(("fedmed", *path.relative_to(PACKAGE).with_suffix("").parts)): path for _, path in files()}
    graph = {}
    for module, path in modules.items():
        names = imported(path.read_text("utf-8"), path)
        graph[module] = {one for name in names for one in (name, name.rpartition(".")[0]) if one in modules} - {module}
    TopologicalSorter(graph).prepare()  # CycleError names a circle


def test_every_part_of_the_package_has_its_place():
    new = sorted({package for package, _ in files()} - set(MAY_IMPORT))
    assert not new, f"say in MAY_IMPORT what fedmed.{new[0]} may import, and why, in ARCHITECTURE's direction"


def test_dependencies_point_one_way():
    checked = [(package, path) for package, path in files() if package in MAY_IMPORT]
    result = [line for package, path in checked for line in violations(path, package, path.read_text("utf-8"))]
    assert not result, "\n".join(result)


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("aggregation", "from fedmed.messages.task import Update"),
        ("losses", "def f():\n    from fedmed import training"),
        ("bundles", "import importlib\nimportlib.import_module('fedmed.training')"),
        ("reports", "import fedmed.flare.executors"),
        ("kinds", "from fedmed.reports.scored_report import SegmentationReport"),
        ("data", "from fedmed.kinds.encoder import Encoder"),
        ("federation", "from fedmed.reports.run import read_run"),
        ("federation", "def f():\n    import nvflare.apis.fl_context"),
        ("federation", "from research.runner.score_table import joined"),
        ("labelling", "from fedmed.export.bundle import export_bundle"),
        ("federation", "from fedmed.labelling.views import predictive_uncertainty"),
        ("settings", "def f():\n    from fedmed_demo import demo_site"),
        ("losses", "from pathlib import Path"),
        ("aggregation", "torch.save({}, 'model.pt')"),
        ("methods", "from fedmed.systems.fedcy.method import FedCy"),
    ],
)
def test_a_wrong_import_is_found(package, source):
    assert violations(Path("x.py"), package, source)


@pytest.mark.parametrize("of", ["fedcy.method", "algorithms.fedprox", "algorithms.scaffold"])
def test_a_system_that_imports_another_is_told_with_its_line(of):
    for path in (PACKAGE / "systems/fedst/method.py", PACKAGE / "systems/algorithms/fedbn.py"):
        (result,) = violations(path, "systems", f"import torch\n\nfrom fedmed.systems.{of} import Other\n")
        assert result.startswith(f"{path}:3: one system may not import another: fedmed.systems.{of}.Other")


def test_files_of_a_system_may_import_one_another():
    source = "from fedmed.systems.fedst.separation import x\nfrom fedmed.training.trainer import plain\n"
    assert not violations(PACKAGE / "systems/fedst/server.py", "systems", source)
