"""What must not be in the repository: code from data, weights that run; and what a job cannot name."""

import ast
import json
import re
import unicodedata
from pathlib import Path

import pytest
import yaml

from fedmed.bundles.bundle import Bundle, check_overrides
from fedmed.data.datalist import load_datalist
from fedmed.errors import BundleError, DataError, FedMedError, JobError
from fedmed.federation.client import Client
from fedmed.jobs.job_folder import read_job
from fedmed.messages.task import Task
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.site import load_site

CHECKOUT = Path(__file__).resolve().parents[1]
# Where code runs at hospitals and servers. Tests make harmful files themselves, to see them refused.
CODE = ("custom", "scripts", "bundles", "monailabel_app", "examples", "benchmarks")
RUNS = {
    *(
        "eval",
        "exec",
        "compile",
        "os.system",
        "os.popen",
        "pty.spawn",
        "runpy.run_path",
        "asyncio.create_subprocess_shell",
    ),
    *(
        "subprocess.getoutput",
        "subprocess.getstatusoutput",
        "yaml.unsafe_load",
        "yaml.full_load",
        "yaml.unsafe_load_all",
    ),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "marshal.load", "marshal.loads", "shelve.open", "joblib.load"),
    *("dill.load", "dill.loads", "cloudpickle.load", "cloudpickle.loads", "pandas.read_pickle", "torch.hub.load"),
}
NEEDS = {  # a call that is allowed with this argument alone
    "torch.load": ("weights_only", {"True"}),
    "yaml.load": ("Loader", {"yaml.SafeLoader", "yaml.CSafeLoader"}),
    "yaml.load_all": ("Loader", {"yaml.SafeLoader", "yaml.CSafeLoader"}),
}
LAST_PARTS = {name.rpartition(".")[2] for name in RUNS | set(NEEDS)}
# A file without any of these words has none of these calls; taking it apart would take most of the time.
WORDS = re.compile(rf"\b({'|'.join(LAST_PARTS)}|shell|allow_pickle|import_module|__import__)\b")
MUST_NOT = {"numpy.load": ("allow_pickle", "False"), "subprocess.": ("shell", "False")}  # another value is refused


def full_names(nodes: list[ast.AST]) -> dict[str, str]:
    """Name in this file -> what it was imported from."""
    names = {"np": "numpy"}
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.split(".")[0]: alias.name if alias.asname else alias.name.split(".")[0]
                      for alias in node.names}  # fmt: skip
        elif isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return names


def called(node: ast.expr, names: dict[str, str]) -> str:
    """Full name of what names and dots alone say, a constant as it is written, and nothing for all else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if isinstance(node, ast.Constant) and not parts:
        return repr(node.value)
    return ".".join([names.get(node.id, node.id), *reversed(parts)]) if isinstance(node, ast.Name) else ""


def harmful(source: str) -> list[str]:
    """What in a Python source could run what it reads, one line each."""
    if not WORDS.search(unicodedata.normalize("NFKC", source)):  # as Python reads names
        return []
    nodes, result = list(ast.walk(ast.parse(source))), []
    names = full_names(nodes)
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    for call in calls:
        name, given = called(call.func, names), {k.arg: called(k.value, names) for k in call.keywords}
        if name in NEEDS:
            argument, right = NEEDS[name]
            if given.get(argument) not in right:
                result.append(f"line {call.lineno}: {name} without {argument}={' or '.join(sorted(right))}")
        for start, (argument, right) in MUST_NOT.items():
            if name.startswith(start) and given.get(argument, right) != right:
                result.append(f"line {call.lineno}: {name} with {argument}={given[argument]}")
        if name in ("importlib.import_module", "__import__") and not isinstance(call.args[0], ast.Constant):
            result.append(f"line {call.lineno}: imports what a variable names")
    functions = {id(call.func) for call in calls}
    for node in nodes:
        if isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and node.attr in LAST_PARTS):
            name = called(node, names) if isinstance(node.ctx, ast.Load) else ""
            if name in RUNS or (name in NEEDS and id(node) not in functions):  # handed on, its arguments are unknown
                result.append(f"line {node.lineno}: {name}")
    return result


def test_no_code_runs_what_it_reads():
    files = [path for folder in CODE for path in sorted((CHECKOUT / folder).rglob("*.py"))]
    assert len(files) > 100
    result = {str(path.relative_to(CHECKOUT)): harmful(path.read_text("utf-8")) for path in files}
    # Classes named by path are imported in one file, which judges what a job names: see tests/test_class_paths.py; and
    # what NVFlare keeps private, and what is loaded later than asked, in two others, from tables in those files.
    for path in ("class_paths.py", "flare/private_flare.py", "light_imports.py"):
        path = f"custom/fedmed/{path}"
        importing = result.pop(path)
        assert importing and all(line.endswith("imports what a variable names") for line in importing)
    assert not {path: lines for path, lines in result.items() if lines}


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(p)",
        "import torch\ntorch.load(p, weights_only=False)",
        "import torch as t\nt.load(p, weights_only=flag)",
        "from torch import load\nload(p, map_location='cpu')",
        "import torch, functools\nfunctools.partial(torch.load, weights_only=True)",
        "import pickle\npickle.load(f)",
        "from pickle import loads as read\nread(b)",
        "import yaml\nyaml.load(f)",
        "import yaml\nyaml.load(f, Loader=yaml.Loader)",
        "import yaml\nyaml.unsafe_load(f)",
        "import numpy as np\nnp.load(f, allow_pickle=True)",
        "from numpy import load\nload(f, allow_pickle=flag)",
        "import subprocess\nsubprocess.run(c, shell=True)",
        "from subprocess import Popen\nPopen(c, shell=flag)",
        "import os\nos.system(c)",
        "from os import system as run\nrun(c)",
        "eval(text)",
        "def f():\n    return exec",
        "import importlib\nimportlib.import_module(name)",
    ],
)
def test_a_harmful_line_is_found(source):
    assert harmful(source)


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ntorch.load(p, map_location='cpu', weights_only=True)",
        "network.eval()\nre.compile(x)",
        "import yaml\nyaml.safe_load(f)\nyaml.load(f, Loader=yaml.CSafeLoader)",
        "import pickle\ntry:\n    pass\nexcept pickle.UnpicklingError:\n    pass",
        "import numpy as np\nnp.load(f)\nnp.load(f, allow_pickle=False)",
        "import subprocess\nsubprocess.run(['ls'], shell=False)",
        "import importlib\nimportlib.import_module('monai')",
    ],
)
def test_a_harmless_line_is_not(source):
    assert not harmful(source)


def texts(value):
    """Every text in a configuration."""
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        return [text for item in value for text in texts(item)]
    return [value] if isinstance(value, str) else []


def configs(pattern):
    paths = sorted(CHECKOUT.glob(pattern))
    return {path: yaml.safe_load(path.read_text("utf-8")) for path in paths if path.suffix in (".yaml", ".json")}


def test_no_bundle_runs_what_it_reads():
    """Bundles may hold expressions, since the site installs them; theirs keep to the same rules."""
    expressions = 0
    for path, config in configs("bundles/*/configs/*").items():
        for text in texts(config):
            if text.startswith("$"):
                source = re.sub(r"@[\w:#]*", "reference", text[1:])
                assert not harmful(source) and "open(" not in source, f"{path}: {text}"
                expressions += 1
    assert expressions > 20


def test_jobs_hold_plain_values_and_name_classes_of_fedmed_and_nvflare_alone():
    result = configs("jobs/*/app_*/config/*") | configs("studies/*.yaml")
    assert result
    for path, config in result.items():
        assert not [text for text in texts(config) if text.lstrip().startswith(("$", "@", "%"))], path
        study = path.suffix == ".yaml"  # it names its method, and may name a rule
        named = re.findall(r'"(?:path|class_path)": "([^"]+)"', json.dumps(config))
        rooms = (
            ("fedmed.methods.", "fedmed.systems.", "fedmed.aggregation.") if study else ("fedmed.flare.", "nvflare.")
        )
        assert named and all(name.startswith(rooms) for name in named), f"{path}: {named}"
    assert not list((CHECKOUT / "jobs").rglob("*.py"))


def test_shell_scripts_evaluate_nothing_and_run_nothing_from_the_network():
    for path in sorted((CHECKOUT / "scripts").glob("*.sh")):
        lines = [line.strip() for line in path.read_text("utf-8").splitlines() if not line.strip().startswith("#")]
        bad = [line for line in lines if re.search(r"(^|[;&|]\s*)eval\s|(curl|wget)\b.*\|\s*(ba|z)?sh\b", line)]
        assert not bad, f"{path}: {bad}"


# --- what a job cannot name


def test_no_bundle_lets_a_job_set_where_things_lie_or_what_runs():
    shared = configs("custom/fedmed/overlays/*.yaml") | configs("custom/fedmed/systems/*/*.yaml")
    overlays = [Path(path).stem for path in shared]
    for path in sorted(CHECKOUT.glob("bundles/*/configs/federation.yaml")):
        bundle = Bundle(path.parents[1].name, overlays)
        listed = bundle.overridable
        assert {"mu", "alpha", "pct_start", "gate_last"} <= set(listed) - set(bundle.federation["overridable"])
        defaults: dict = {}
        for config in (configs(f"bundles/{bundle.name}/configs/*.yaml") | shared).values():
            defaults |= {key: value for key, value in config.items() if key in listed}
        assert set(defaults) == set(listed), "a setting that a job may change exists"
        for key, value in defaults.items():  # a reference to another setting that a job may change is plain too
            plain = value[1:] in listed if isinstance(value, str) and value.startswith("@") else True
            assert plain, f"{path}: {key}"
            if not (isinstance(value, str) and value.startswith("@")):
                check_overrides({key: value}, listed)


OUTSIDE = [
    "../secret.pt",
    "/etc/passwd",
    "models/../../secret.pt",
    "a/b.pt",
    "..",
    ".",
    ".hidden",
    "~/x.pt",
    "x\n",
    "a\0b",
]


@pytest.mark.parametrize("name", [*OUTSIDE, "$x", 7, ["model.pt"], {"a": 1}])
def test_a_checkpoint_is_a_plain_name_in_the_bundle(store_of, tmp_path, name):
    with pytest.raises(JobError, match="checkpoint"):
        store_of(tmp_path, "covid_ct_segmentation", checkpoint=name)


@pytest.mark.parametrize("name", [*OUTSIDE, "", "covid_ct_segmentation/../covid_ct_segmentation", 7, None])
def test_bundle_and_overlay_are_plain_names(name):
    with pytest.raises(BundleError, match="plain name"):
        Bundle(name)
    with pytest.raises(BundleError, match="plain name"):
        Bundle("covid_ct_segmentation", [name])


@pytest.mark.parametrize("extra", [{"folder": "/etc"}, {"site": "x"}, {"data_root": "/"}, {"datalist": "/etc/passwd"}])
def test_a_job_cannot_pass_folders_to_site_or_server(tiny_job, extra):
    with pytest.raises(JobError, match="unknown key"):
        read_job(tiny_job()).changed(extra)


@pytest.mark.parametrize("round", ["0/../../../outside", "../../outside", "/tmp/outside"])
@pytest.mark.parametrize("field", ["round", "private_round"])
def test_a_task_cannot_name_a_file_by_its_round(tiny_job, tmp_path, field, round):
    """Rounds become file names at the site; whoever sends one must not reach other files through it."""
    job, folder = read_job(tiny_job()), tmp_path / "site" / "job"
    client = Client(job, load_site("ct_north"), folder)
    initial = ModelStore(job, tmp_path).initial
    before = {path for path in tmp_path.rglob("*") if folder not in (path, *path.parents)}
    with pytest.raises((FedMedError, TypeError)):
        client.train(Task("train", **{"round": 0, field: round}, total_rounds=1, tensors=initial, steps=1))
    after = {path for path in tmp_path.rglob("*") if folder not in (path, *path.parents)}
    assert after - before <= {folder.parent} and not list(folder.rglob("*.pt"))


@pytest.fixture
def data(tmp_path):
    """A site's data folder with one image, and a file next to it that does not belong to its data."""
    root = tmp_path / "data"
    root.mkdir()
    (root / "a.nii.gz").write_bytes(b"image")
    (tmp_path / "secret.nii.gz").write_bytes(b"secret")
    return root


def entry(root, **values):
    (root / "datalist.json").write_text(json.dumps({"training": [values], "unlabeled": [values]}))
    return root, root / "datalist.json"


@pytest.mark.parametrize(
    "path",
    [
        *("../secret.nii.gz", "./../secret.nii.gz", "x/../../secret.nii.gz", "..\\secret.nii.gz", "//etc/passwd"),
        *("/etc/passwd", "file:///etc/passwd", "~/secret.nii.gz", "C:\\secret.nii.gz", "a.nii.gz\0", "", ".", None),
        *(["a.nii.gz"], {"a": 1}, 7, "$a", "@datalist", "%/etc/passwd"),
    ],
)
def test_a_datalist_cannot_lead_out_of_the_data_folder(data, path):
    with pytest.raises(DataError):
        load_datalist(*entry(data, image=path), "unlabeled")
    with pytest.raises(DataError):
        load_datalist(*entry(data, image="a.nii.gz", label=path), "training")


def test_a_link_is_the_sites_own_decision(data):
    """Hospitals mount and link their archives; only the site can place a link, a job writes nothing there."""
    (data / "link.nii.gz").symlink_to(data.parent / "secret.nii.gz")
    assert len(load_datalist(*entry(data, image="link.nii.gz"), "unlabeled")) == 1


def test_a_link_to_nothing_is_refused(data):
    (data / "link.nii.gz").symlink_to(data / "nowhere")
    with pytest.raises(DataError, match="does not exist"):
        load_datalist(*entry(data, image="link.nii.gz"), "unlabeled")
