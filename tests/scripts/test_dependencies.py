"""The locks of both environments, the list of advisories, and the list of packages for a release."""

import json
import re
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "locks" / "dependencies.py"
LOCK = "numpy==2.4.6 \\\n    --hash=sha256:{}\n".format("0" * 64)


@pytest.fixture
def module(tmp_path, monkeypatch):
    """The script, for a checkout with one requirement, one platform and its lock."""
    names = runpy.run_path(str(SCRIPT))
    place = names["check"].__globals__
    (tmp_path / "locks").mkdir()
    (tmp_path / "requirements.txt").write_text("# Numbers.\nnumpy==2.4.6\n")
    monkeypatch.setitem(place, "LOCKS", tmp_path / "locks")
    monkeypatch.setitem(place, "SETS", {"": tmp_path / "requirements.txt"})
    monkeypatch.setitem(place, "PLATFORMS", {"linux-x86_64": "x86_64-manylinux_2_28"})
    (tmp_path / "locks" / "linux-x86_64.txt").write_text(LOCK)
    write_advisories(tmp_path)
    return names


def write_advisories(folder, **more):
    one = {"id": "CVE-1", "package": "NumPy", "affected": "<2.4.7", "fixed": "2.4.7", "what": "arrays run code"}
    known = [one | more] if more else []
    (folder / "locks" / "advisories.json").write_text(json.dumps({"date": "2026-11-26", "advisories": known}))


def test_this_checkouts_locks_are_whole_and_have_no_open_advisory():
    done = subprocess.run([sys.executable, str(SCRIPT), "check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^dependencies: [0-9]+ advisories of [0-9]+ [A-Z][a-z]+ 20[0-9]+ looked at$", done.stdout, re.M)


def test_every_package_that_fedmed_brings_along_is_locked():
    """What someone installed beside it, or an older version of FedMed asked for, may be there too."""
    names = runpy.run_path(str(SCRIPT))
    platform = next(name for name in names["PLATFORMS"] if name.startswith(sys.platform))
    lock = names["parts"]("", platform) | names["parts"]("dev-", platform)
    asked = [Requirement(f"fedmed[{extra}]") for extra in metadata.metadata("fedmed").get_all("Provides-Extra")]
    reached = {names["canonicalize_name"](name) for name in brought_along(asked)}
    assert {
        "torch",
        "monai",
        "markdown-it-py",
        "pytest",
    } <= reached  # the last two: of rich, and of those who change it
    assert reached - set(lock) <= {"fedmed"}, "installed without a lock"


def brought_along(asked):
    """Names of the installed packages that some requirements ask for, and of all that these ask for."""
    done, installed = set(), set()
    while asked:
        wanted = asked.pop()
        for extra in {"", *wanted.extras} - {extra for name, extra in done if name == wanted.name}:
            done.add((wanted.name, extra))
            try:
                needs = [Requirement(need) for need in metadata.requires(wanted.name) or ()]
            except metadata.PackageNotFoundError:
                continue  # not for this platform, or not asked for
            installed.add(wanted.name)
            asked += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return installed


def test_a_sound_checkout_passes(module, capsys):
    assert module["check"]() == 0
    assert capsys.readouterr().out == "dependencies: 0 advisories of 26 November 2026 looked at\n"


def test_an_affected_version_is_named_with_its_advisory_and_the_version_that_mends_it(module, tmp_path, capsys):
    write_advisories(tmp_path, id="CVE-2")
    assert module["check"]() == 1
    error = capsys.readouterr().err
    assert error == "error: numpy 2.4.6 (linux-x86_64.txt): CVE-2: arrays run code; fixed in 2.4.7\n"


def test_an_accepted_advisory_passes_and_is_still_named_with_its_reason(module, tmp_path, capsys):
    write_advisories(tmp_path, accepted="never called here")
    assert module["check"]() == 0
    assert "known: numpy 2.4.6" in (said := capsys.readouterr().out) and "never called here" in said


def test_an_advisory_of_another_version_says_nothing(module, tmp_path, capsys):
    write_advisories(tmp_path, affected="<2.4.6")
    assert module["check"]() == 0 and "numpy" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("locks/linux-x86_64.txt", "numpy==2.4.6\n", "the lock of linux-x86_64: numpy has no hash"),
        ("locks/linux-x86_64.txt", LOCK.replace("2.4.6", "2.4.5"), "numpy is not 2.4.6, as requirements.txt asks"),
        ("requirements.txt", "numpy==2.4.6\nscipy==1.17.1\n", "scipy is not 1.17.1, as requirements.txt asks"),
    ],
)
def test_a_lock_that_is_not_whole_or_not_new_fails(module, tmp_path, capsys, file, text, message):
    (tmp_path / file).write_text(text)
    assert module["check"]() == 1 and message in capsys.readouterr().err


def test_a_requirement_without_a_version_is_refused(module, tmp_path):
    (tmp_path / "requirements.txt").write_text("numpy>=2\n")
    with pytest.raises(SystemExit, match="'numpy>=2' does not name one version with =="):
        module["check"]()


def test_a_further_build_of_a_pinned_version_may_be_installed_on_its_platform(module, tmp_path):
    wheel = tmp_path / "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"
    wheel.write_bytes(b"x")
    known = (("linux-x86_64", "2.13.0", 1), ("linux-aarch64", "2.13.0", 0), ("linux-x86_64", "2.12.0", 0))
    for platform, version, added in known:
        lock = {"torch": (version, set())}
        module["add_build"](lock, wheel, platform)
        assert len(lock["torch"][1]) == added


def test_no_code_lets_opencv_open_a_file():
    """Its FFmpeg and its decoders of images have open advisories: pictures go to Pillow, videos to PyAV."""
    reading = re.compile(r"cv2\.(VideoCapture|imread|imdecode|VideoWriter|imreadmulti|FileStorage)")
    rooms = ("custom", "bundles", "monailabel_app", "scripts")
    sources = [path for room in rooms for path in (ROOT / room).rglob("*.py")]
    assert sources and not [path for path in sources if reading.search(path.read_text(encoding="utf-8"))]


@pytest.mark.slow
def test_the_list_for_a_release_names_every_locked_package(tmp_path):
    subprocess.run([sys.executable, str(SCRIPT), "sbom", str(tmp_path)], check=True, capture_output=True)
    names = runpy.run_path(str(SCRIPT))
    for start in names["SETS"]:
        for platform in names["PLATFORMS"]:
            listed = json.loads((tmp_path / f"fedmed-{start}{platform}.cdx.json").read_text())
            assert listed["bomFormat"] == "CycloneDX" and listed["metadata"]["component"]["name"] == "fedmed"
            pins = {(name, version) for name, (version, _) in names["parts"](start, platform).items()}
            assert pins <= {(one["name"], one["version"]) for one in listed["components"]}
