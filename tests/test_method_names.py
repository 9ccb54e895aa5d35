"""Systems lie in one room; the rest of the package asks a method's or an algorithm's object and never says its name."""

import re
from collections import defaultdict
from pathlib import Path

import pytest

from fedmed.methods.find_method import adaptations, algorithms, installed
from fedmed.methods.method import Method

CHECKOUT = Path(__file__).resolve().parents[1]
PACKAGE = CHECKOUT / "custom" / "fedmed"
SYSTEMS = ("systems/", "moved_classes.py", "commands/")  # where methods are declared, were, and are examples of help
GENERIC = {"train_loss", "n", "mu", "sigma"}  # other things are called so too
ENGLISH = {"linear", "amplitude"}  # words of their own meaning: names where they are quoted
FURTHER = ("MoCo", "moco", "contrastive", "self_adaptive", "self-adaptive", "fine-tuning", "finetune")
ANOTHER = {("losses/pseudo_label.py", '"linear"')}  # how a threshold grows


def names() -> list[str]:
    """Short names, classes and titles of methods and the like, and their values beside the model and the scalars."""
    result, said_in = set(FURTHER), defaultdict(set)
    for stem, kind in {**installed(), **algorithms()}.items():
        if kind.__module__.startswith("fedmed.systems."):  # not the mean of labelled sites, on which systems build
            made = kind()
            result |= {stem, kind.__name__, made.title}
            for one in (*made.values(), *(made.scalars() if isinstance(made, Method) else ())):
                said_in[one.name].add(kind.__module__.rpartition(".")[0])
    result |= {name for name, systems in said_in.items() if len(systems) == 1}  # those of several are nobody's own
    result |= {kind.title for kind in adaptations().values()}  # whose other names are words of every day
    result -= GENERIC
    result |= {name.removeprefix("train_") for name in result}  # as an engine gives them
    words = {quoted for name in result & ENGLISH for quoted in (f'"{name}"', f"'{name}'")}
    return sorted((result | words) - {name for name in result if name.lower() in ENGLISH})


def pattern(name: str) -> str:
    return rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])"


SAID = sorted(names(), key=len, reverse=True)
NAMES = re.compile("|".join(map(pattern, SAID)))


def hits(path: str, text: str) -> list[str]:
    """``path:line: name`` of every name in a file of the package."""
    said = [name for name in SAID if name in text]  # looked for first: it takes a tenth of the pattern's time
    lines = ((n, line) for n, line in enumerate(text.splitlines(), start=1) if any(name in line for name in said))
    result = ((number, match) for number, line in lines for match in NAMES.findall(line))
    return [f"{path}:{number}: {match}" for number, match in result if (path, match) not in ANOTHER]


def test_the_names_are_those_of_the_methods():
    assert {"fedprox", "FedDyn", "SCAFFOLD", "control_difference"} <= set(names())
    assert {"fedmoco", "FedMoCo", "rsa", "contrastive_accuracy", "train_clamped_fraction", '"linear"'} <= set(names())
    assert not {"linear", "Linear", "n", "mu", "train_loss", "SupervisedFedAvg"} & set(names())


@pytest.mark.parametrize(
    ("line", "result"),
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
def test_a_name_is_found(line, result):
    assert hits("x.py", f"\n{line}\n") == [f"x.py:2: {name}" for name in result]


def test_no_file_outside_the_systems_names_one():
    result = []
    for path in sorted(PACKAGE.rglob("*")):
        name = path.relative_to(PACKAGE).as_posix()
        if path.suffix in (".py", ".html", ".j2", ".js", ".yaml") and not name.startswith(SYSTEMS):
            result += hits(name, path.read_text("utf-8"))
    assert not result, "ask the method's object instead:\n" + "\n".join(result)
