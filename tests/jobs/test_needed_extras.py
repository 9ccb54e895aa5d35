"""Extras that a study needs, and errors where a package of one is missing."""

import ast
import importlib
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

from fedmed import optional
from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError, DataError, FedMedError, MissingPackage
from fedmed.files import CHECKOUT
from fedmed.jobs import needed_extras
from fedmed.jobs.job_folder import read_job
from fedmed.jobs.needed_extras import extras_line, needed_packages, required_packages
from fedmed.optional import extras_for, needs, packages_of_extras, pip_line
from tests.shipped import shipped

OFFERED = {
    None: {"nibabel", "pytorch-ignite", "pillow", "torch"},
    "video": {"av"},
    "dicom": {"pydicom", "highdicom", "python-gdcm"},
    "xray": {"opencv-python-headless", "kornia"},
    "text": {"transformers"},
    "privacy": {"opacus"},
    "demo": {"av", "kornia", "opencv-python-headless"},  # which nobody needs for a study
}
MODULES = {"av": "av", "cv2": "opencv-python-headless", "kornia": "kornia", "transformers": "transformers"}
MODULES |= {"pydicom": "pydicom", "highdicom": "highdicom", "opacus": "opacus"}


@pytest.fixture(autouse=True)
def offered(monkeypatch):
    monkeypatch.setattr(needed_extras, "packages_of_extras", lambda: OFFERED)


@pytest.mark.parametrize(
    ("study", "line"),
    [
        ("covid_fssl", ""),
        ("cxr_fedmoco", "pip install 'fedmed[dicom,xray]'"),
        ("phases_fedcy", "pip install 'fedmed[video,xray]'"),
        ("tools_fedprox", "pip install 'fedmed[video,xray]'"),
        ("instruments_fedst", "pip install 'fedmed[text,video,xray]'"),
    ],
)
def test_a_study_says_its_extras_and_what_is_missing_here(study, line, monkeypatch):
    job = read_job(shipped(study))
    assert extras_line(job) == line and extras_line(job, only_missing=True) == ""
    noisy = SimpleNamespace(bundles=None, privacy=SimpleNamespace(noise_multiplier=1.0))
    assert "privacy" in extras_line(job, noisy) and [p.name for p in needed_packages(job, noisy) if p.name == "opacus"]
    known = metadata.version

    def version(name):
        if name == "av":
            raise metadata.PackageNotFoundError(name)
        return known(name)

    monkeypatch.setattr(needed_extras, "version", version)
    assert extras_line(job, only_missing=True) == ("pip install 'fedmed[video]'" if "video" in line else "")


def test_extras_are_few_and_a_package_in_none_is_named_itself():
    both = {**OFFERED, "video": {"av", "kornia"}}
    assert extras_for({"av", "kornia", "Pillow"}, both) == (["video"], [])
    assert extras_for({"av", "kornia", "some_net"}, OFFERED) == (["video", "xray"], ["some-net"])
    assert pip_line(["video"], ["some-net==2"]) == "pip install 'fedmed[video]' 'some-net==2'" and pip_line([]) == ""


def test_extras_are_read_of_a_checkout_and_of_what_is_installed(tmp_path, monkeypatch):
    lines = ["torch==2", 'av==18.1.0; extra == "video"', 'fedmed[video]; extra == "all"', 'av; sys_platform == "none"']
    made = SimpleNamespace(requires=lines, metadata=SimpleNamespace(get_all=lambda key: ["video", "all"]))
    monkeypatch.setattr(optional, "distribution", lambda name: made)
    monkeypatch.setattr(optional, "CHECKOUT", tmp_path)
    assert packages_of_extras() == {None: {"torch"}, "video": {"av"}, "all": set()}
    project = '[project]\nname = "fedmed"\ndependencies = ["Torch"]\n[project.optional-dependencies]\n'
    (tmp_path / "pyproject.toml").write_text(f'{project}xray = ["kornia>=0.8"]\n')
    assert packages_of_extras() == {None: {"torch"}, "xray": {"kornia"}}


def targets(value):
    """Class paths in a configuration."""
    if isinstance(value, dict):
        own = [value["_target_"]] if isinstance(value.get("_target_"), str) else []
        return own + [path for each in value.values() for path in targets(each)]
    return [path for each in value for path in targets(each)] if isinstance(value, list) else []


def imported(module, root, seen):
    """Names that a file imports, and those below it; of FedMed's own not those that only a function imports."""
    places = [folder / f"{module.replace('.', '/')}.py" for folder in (CHECKOUT / "custom", root)]
    if module in seen or not any(path.is_file() for path in places):
        return set()
    seen.add(module)
    (path,) = (path for path in places if path.is_file())
    waiting, found = ast.parse(path.read_text()).body, set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(f"{module.partition('.')[0]}.{node.module}" if node.level else node.module)
        elif path.is_relative_to(root) or not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            waiting += ast.iter_child_nodes(node)
    return found.union(*(imported(name, root, seen) for name in found))


@pytest.mark.parametrize("root", sorted((CHECKOUT / "bundles").iterdir()), ids=lambda root: root.name)
def test_a_bundle_requires_what_its_configurations_import(root):
    bundle, seen = Bundle(root.name), set()
    files = [path for path in (root / "configs").glob("*.yaml") if path.stem != "federation"]
    paths = {path.rpartition(".")[0] for file in files for path in targets(bundle.parser().load_config_file(file))}
    tops = {name.partition(".")[0] for path in paths for name in imported(path, root, seen)}
    assert tops and {MODULES[top] for top in tops & set(MODULES)} <= set(required_packages(bundle))


def test_a_bundle_that_says_wrongly_what_it_requires_is_told(monkeypatch):
    bundle = Bundle("covid_ct_segmentation")
    monkeypatch.setitem(bundle.metadata, "required_packages_version", {"av": 18})
    with pytest.raises(BundleError, match="metadata.json: 'required_packages_version' is .*write package: version"):
        required_packages(bundle)


@pytest.mark.parametrize(
    ("module", "extra", "use"),
    [
        ("av", "video", lambda: importlib.import_module("fedmed.data.video.source").need_av()),
        ("kornia", "xray", lambda: importlib.import_module("fedmed.data.augment.clip_views")),
        ("cv2", "xray", lambda: importlib.import_module("fedmed.data.augment.xray")),
        ("highdicom", "dicom", lambda: importlib.import_module("fedmed.data.dicom_results")),
        ("pydicom", "dicom", lambda: importlib.import_module("fedmed.data.prepare.dicom_headers")),
        ("opacus", "privacy", lambda: importlib.import_module("fedmed.privacy.protection").epsilon([(1.0, 1)], 0.1)),
        ("onnxscript", "onnx", lambda: importlib.import_module("fedmed.export.formats").write_onnx(None, None)),
        ("transformers", "text", lambda: importlib.import_module("instrument_nets.encoder")),
    ],
)
def test_a_missing_package_names_the_extra(module, extra, use, monkeypatch):
    Bundle("instrument_segmentation")  # makes its package importable
    ours = ("fedmed.data.augment.", "fedmed.data.dicom_results", "fedmed.data.prepare.dicom", "instrument_nets.encoder")
    for name in [name for name in sys.modules if name.partition(".")[0] == module or name.startswith(ours)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises((FedMedError, ValueError), match=rf"{module}.*pip install 'fedmed\[{extra}\]'"):
        use()


def test_another_type_of_error_may_be_asked_for():
    with pytest.raises(DataError, match="films need the package no_such_package"), needs("video", "films", DataError):
        import no_such_package  # noqa: F401
    with pytest.raises(MissingPackage), needs("video", "films"):
        import no_such_package.inner  # noqa: F401
