"""A method is an object, an algorithm too; the rest of the package asks them and never says a name of theirs."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from fedmed.methods.algorithms.algorithm import Algorithm
from fedmed.methods.find_method import adaptations, algorithms, installed
from fedmed.methods.method import Method
from fedmed.methods.supervised_fedavg import SupervisedFedAvg

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "custom" / "fedmed"
ASKED = ("methods/", "overlays/")  # where methods are declared
COMPUTE = ("losses", "networks", "engines", "aggregation", "data/augment")  # where a method may have files of its own
GENERIC = {"train_loss", "n", "mu", "sigma"}  # other things are called so too
ENGLISH = {"linear"}  # a word of its own meaning: it is a method's name where it is quoted
FURTHER = ("MoCo", "moco", "contrastive", "self_adaptive", "self-adaptive", "fine-tuning", "finetune")
ANOTHER = {("losses/pseudo_label.py", '"linear"')}  # how a threshold grows


def names() -> list[str]:
    """Short names, classes and titles of methods and the like, and their values beside the model and the scalars."""
    found = set(FURTHER)
    for stem, kind in {**installed(), **algorithms()}.items():
        made = kind()
        found |= {stem, kind.__name__, made.title} | {value.name for value in made.values()}
        found |= {scalar.name for scalar in made.scalars()} if isinstance(made, Method) else set()
    for kind in adaptations().values():  # whose short names are words of every day
        found |= {kind.title, *(value.name for value in kind().values())}
    found -= GENERIC
    found |= {name.removeprefix("train_") for name in found}  # as an engine gives them
    words = {quoted for name in found & ENGLISH for quoted in (f'"{name}"', f"'{name}'")}
    return sorted((found | words) - {name for name in found if name.lower() in ENGLISH})


def pattern(name: str) -> str:
    return rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"


NAMES = re.compile("|".join(map(pattern, sorted(names(), key=len, reverse=True))))


def hits(path: str, text: str) -> list[str]:
    """``path:line: name`` of every name in a file of the package."""
    lines = enumerate(text.splitlines(), start=1)
    found = ((number, match) for number, line in lines for match in NAMES.findall(line))
    return [f"{path}:{number}: {match}" for number, match in found if (path, match) not in ANOTHER]


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("fedmed."):
            found |= {str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def files_of(module: str) -> list[Path]:
    """The file of a module, and those of the packages around it."""
    parts = module.split(".")[1:]
    around = [PACKAGE.joinpath(*parts[:n], "__init__.py") for n in range(2, len(parts) + 1)]
    return [path for path in (*around, PACKAGE.joinpath(*parts).with_suffix(".py")) if path.is_file()]


def computing(modules: set[str]) -> set[str]:
    """Files of the rooms that compute, of these modules and all that they import."""
    found: set[str] = set()
    while modules:
        paths = {path: path.relative_to(PACKAGE).as_posix() for module in modules for path in files_of(module)}
        new = {path for path, name in paths.items() if name.startswith(COMPUTE) and name not in found}
        found |= {paths[path] for path in new}
        modules = {module for path in new for module in imports(path)}
    return found


def named_in(value: object) -> set[str]:
    """Modules of the class paths of the package in plain values."""
    if isinstance(value, dict | list):
        return {name for item in (value.values() if isinstance(value, dict) else value) for name in named_in(item)}
    return {value.rpartition(".")[0]} if isinstance(value, str) and value.startswith("fedmed.") else set()


def modules_of(kind: type) -> set[str]:
    """Modules that the overlays of a method or an algorithm, and its rule, name."""
    made = kind()
    if isinstance(made, Algorithm):
        found, overlays = named_in(made.rule({})), {str(made.overlay)}
    else:
        found, overlays = named_in(made.rule()), {"train", *(o for r in made.roles().values() for o in r.overlays)}
    for overlay in overlays:
        shared = (PACKAGE / "overlays").glob(f"{overlay}.yaml")
        for path in (*(CHECKOUT / "bundles").glob(f"*/configs/{overlay}.yaml"), *shared):
            found |= named_in(yaml.safe_load(path.read_text("utf-8")))
    return found


def own_files() -> set[str]:
    """Files that implement a method or an algorithm: what its overlays and rule name, and not every training needs."""
    plain = computing(modules_of(SupervisedFedAvg))
    kinds = [*installed().values(), *algorithms().values(), *adaptations().values()]
    return {name for kind in kinds for name in computing(modules_of(kind))} - plain


def test_the_names_are_those_of_the_methods():
    assert {"fedprox", "FedDyn", "SCAFFOLD", "control_difference"} <= set(names())
    assert {"fedmoco", "FedMoCo", "rsa", "contrastive_accuracy", "train_clamped_fraction", '"linear"'} <= set(names())
    assert not {"linear", "Linear", "n", "mu"} & set(names())
    own = own_files()
    assert {"losses/info_nce.py", "networks/queue.py", "aggregation/self_adaptive.py", "data/augment/clahe.py"} <= own
    assert {"aggregation/dynamic.py", "aggregation/control.py", "engines/corrections/phased.py"} <= own
    assert not {"engines/trainer.py", "engines/supervised.py", "aggregation/weighted_mean.py"} & own


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('if method == "rsa":', ["rsa"]),
        ('    "linear": 1,', ['"linear"']),
        ("# as FedMoCo's sites do", ["FedMoCo"]),
        ('if name == "fedprox":', ["fedprox"]),
        ('metrics["train_zero_rows"]', ["train_zero_rows"]),
        ("<code>cxr_finetune</code> after Contrastive", ["finetune"]),
        ("nn.Linear(3, 1); mode=linear; universal, inconsistency, rsaX", []),
    ],
)
def test_a_name_is_found(line, found):
    assert hits("x.py", f"\n{line}\n") == [f"x.py:2: {name}" for name in found]


def test_no_other_file_names_a_method():
    own, found = own_files(), []
    for path in sorted(PACKAGE.rglob("*")):
        name = path.relative_to(PACKAGE).as_posix()
        if path.suffix in (".py", ".html", ".j2", ".js", ".yaml") and not name.startswith(ASKED):
            found += [] if name in own else hits(name, path.read_text("utf-8"))
    assert not found, "ask the method's object instead:\n" + "\n".join(found)
