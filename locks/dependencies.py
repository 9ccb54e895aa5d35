#!/usr/bin/env python3
"""Lock the packages of all environments, check the locks against known advisories, list them for a release.

    locks/dependencies.py check          no network: every pin is locked with a hash, none has an open advisory
    locks/dependencies.py lock           resolve requirements*.txt and MONAI Label's anew, and write locks/*.txt
    locks/dependencies.py sbom FOLDER    write a CycloneDX list (SBOM) for each lock file

The locks keep their versions as far as the requirements allow; --upgrade takes the newest. locks/advisories.json holds
the advisories that are known, with the date when they were looked up. One that is not mended yet has a reason there
under "accepted"; check names these too. lock and sbom need tools that no hospital does: they go to .tools/.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import venv
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ROOT / "locks"
LABEL = ROOT / "monailabel_app" / "environment"
TOOLS = LOCKS / "tools.txt"
# Start of a lock file's name -> what it is made of.
SETS = {"": ROOT / "requirements.txt", "label-": LABEL / "requirements.txt", "dev-": ROOT / "requirements-dev.txt"}
DEV = "dev-"  # goes beside the set without a name: in versions that fit it, and without what is in it
# Lock files for all platforms -> what they are made of.
SHARED = {TOOLS: LOCKS / "tools.in", LOCKS / "label-source.txt": LABEL / "from_source.txt"}
PYTHONS = {"": ("3.11", "3.12", "3.13"), "label-": ("3.11", "3.12"), DEV: ("3.11", "3.12", "3.13")}
# As Python spells sys.platform and the machine -> as uv does. PyTorch has wheels for macOS 14 and newer alone.
PLATFORMS = {
    "linux-x86_64": "x86_64-manylinux_2_28",
    "linux-aarch64": "aarch64-manylinux_2_28",
    "darwin-arm64": "aarch64-apple-darwin",
}
MACOS = {"MACOSX_DEPLOYMENT_TARGET": "14.0"}
CUDA = ("nvidia-", "cuda-", "triton")  # what PyTorch's build for GPUs alone needs
# Installed without what it asks for: 1.2 GB that the server never touches here.
NO_DEPENDENCIES = {"label-": LABEL / "without_dependencies.txt"}
HEAD = "# Written by locks/dependencies.py lock from {source}. Change that, not this.\n"
Lock = dict[str, tuple[str, set[str]]]  # name -> version, SHA-256 of its wheels


def read(path: Path) -> Lock:
    """Return what a lock file, or a file of requirements, pins.

    Raises:
        SystemExit: an entry has no exact version.
    """
    locked: Lock = {}
    for line in path.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        words = line.split(" #")[0].split()
        if not words or words[0].startswith("#"):
            continue
        wanted = Requirement(words[0])
        versions = [one.version for one in wanted.specifier if one.operator == "=="]
        if len(versions) != 1:
            sys.exit(f"error: {path}: {words[0]!r} does not name one version with ==")
        hashes = {word.removeprefix("--hash=sha256:") for word in words if word.startswith("--hash=sha256:")}
        locked[canonicalize_name(wanted.name)] = versions[0], hashes
    return locked


def mistakes() -> Iterator[str]:
    """Yield what is wrong with the locks: an entry without a hash, and a requirement that they do not follow."""
    for start, source in SETS.items():
        pins = read(source)
        for platform in PLATFORMS:
            lock = parts(start, platform)
            where = f"the lock of {start}{platform}"
            yield from (f"{where}: {name} has no hash" for name, (_, hashes) in lock.items() if not hashes)
            for name, (version, _) in pins.items():
                if name not in lock or lock[name][0] != version:
                    yield f"{where}: {name} is not {version}, as {source.name} asks; run locks/dependencies.py lock"


def parts(start: str, platform: str) -> Lock:
    """Return what all lock files of an environment pin."""
    locked: Lock = {}
    for path in sorted(LOCKS.glob(f"{start}{platform}*.txt")):
        locked |= read(path)
    return locked


def affected(advisories: Sequence[dict]) -> Iterator[tuple[dict, str, str, list[str]]]:
    """Yield each advisory that fits a locked version, with the package, the version and the lock files."""
    locks = {path.name: read(path) for path in sorted(LOCKS.glob("*.txt"))}
    for one in advisories:
        name, bad = canonicalize_name(one["package"]), SpecifierSet(one["affected"], prereleases=True)
        where = [file for file, lock in locks.items() if name in lock and lock[name][0] in bad]
        if where:
            yield one, name, locks[where[0]][name][0], where


def check() -> int:
    """Print what is wrong; return the exit code."""
    known = json.loads((LOCKS / "advisories.json").read_text(encoding="utf-8"))
    wrong = [*mistakes()]
    for one, name, version, where in affected(known["advisories"]):
        text = f"{name} {version} ({', '.join(where)}): {one['id']}: {one['what']}"
        if reason := one.get("accepted"):
            print(f"known: {text}\n       {reason}")
        else:
            wrong.append(f"{text}; fixed in {one.get('fixed', 'no version yet')}")
    print(
        f"dependencies: {len(known['advisories'])} advisories of {date.fromisoformat(known['date']):%d %B %Y} looked at"
    )
    for text in wrong:
        print(f"error: {text}", file=sys.stderr)
    return 1 if wrong else 0


def tool(name: str) -> str:
    """Return the path of a maintainer's tool; the environment .tools/ is made when it is missing."""
    place, wanted = ROOT / ".tools", TOOLS.read_text(encoding="utf-8")
    stamp = place / "fedmed-stamp"
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        venv.create(place, with_pip=True, clear=True)
        command = [place / "bin" / "python", "-m", "pip", "install", "--quiet", "--require-hashes", "--no-deps"]
        subprocess.run([*command, "-r", TOOLS], check=True)
        stamp.write_text(wanted, encoding="utf-8")
    return str(place / "bin" / name)


def uv(source: Path, *options: str | Path) -> None:
    """Let uv resolve a file of requirements."""
    command = [tool("uv"), "pip", "compile", source, "--quiet", "--no-config", "--no-header", "--no-annotate"]
    subprocess.run([*command, *options], check=True, env={**os.environ, **MACOS})


def resolved(source: Path, platform: str, pythons: Sequence[str], keep: Lock, *options: str) -> Lock:
    """Return every package with one version for all Pythons, and the hashes of the wheels that fit one of them.

    Args:
        keep: versions that are kept where they still fit.
    """
    locked: Lock = {}
    with tempfile.TemporaryDirectory() as folder:
        pins, out = Path(folder) / "pins.txt", Path(folder) / "pylock.toml"
        pins.write_text("".join(f"{name}=={version}\n" for name, (version, _) in keep.items()), encoding="utf-8")
        wheels = ["--only-binary", ":all:", "--python-platform", PLATFORMS[platform], *options, "--python-version"]
        uv(source, *wheels, pythons[0], "--output-file", pins)  # what lies there already is preferred
        for python in pythons:
            uv(source, *wheels, python, "--constraint", pins, "--output-file", out)
            for one in tomllib.loads(out.read_text(encoding="utf-8"))["packages"]:
                hashes = {wheel["hashes"]["sha256"] for wheel in one["wheels"]}
                known, before = locked.get(one["name"], (one["version"], set()))
                if known != one["version"]:
                    sys.exit(
                        f"error: {one['name']} is {known} for Python {pythons[0]} and {one['version']} for {python}"
                    )
                locked[one["name"]] = known, before | hashes
    return locked


def lock(upgrade: bool, builds: Sequence[Path]) -> None:
    """Write all lock files.

    Args:
        upgrade: take the newest versions of what the requirements leave open.
        builds: further wheels of pinned versions, such as PyTorch for CPUs alone.
    """
    for start, source in SETS.items():
        for platform in PLATFORMS:
            path, pythons = LOCKS / f"{start}{platform}.txt", PYTHONS[start]
            base = parts("", platform) if start == DEV else {}
            locked = resolved(source, platform, pythons, base | ({} if upgrade else parts(start, platform)))
            if odd := [name for name in base if name in locked and locked[name][0] != base[name][0]]:
                sys.exit(f"error: {source}: {odd[0]} does not go with the version that {platform}.txt locks")
            locked = {name: one for name, one in locked.items() if name not in base}
            if start in NO_DEPENDENCIES:
                locked |= resolved(NO_DEPENDENCIES[start], platform, pythons, {}, "--no-deps")
            for wheel in builds:
                add_build(locked, wheel, platform)
            for part in ("", "-torch", "-cuda"):
                chosen = {name: one for name, one in locked.items() if part_of(name) == part}
                write(path.with_name(f"{path.stem}{part}.txt"), chosen, source)
    for path, source in SHARED.items():
        uv(source, "--universal", "--python-version", "3.11", "--generate-hashes", "--output-file", path)
        path.write_text(
            HEAD.format(source=source.relative_to(ROOT)) + path.read_text(encoding="utf-8"), encoding="utf-8"
        )
        print(path)


def part_of(name: str) -> str:
    """Return the end of the name of the lock file that a package stands in; see locks/install.sh."""
    return "-cuda" if name.startswith(CUDA) else "-torch" if name == "torch" else ""


def add_build(locked: Lock, wheel: Path, platform: str) -> None:
    """Let a wheel be installed too, if it is a build of the pinned version for this platform."""
    name, version, _, tags = parse_wheel_filename(wheel.name)
    system, _, machine = platform.partition("-")
    fits = any(tag.platform.endswith(machine) and system in tag.platform for tag in tags)
    if fits and name in locked and locked[name][0] == version.public:
        locked[name][1].add(hashlib.sha256(wheel.read_bytes()).hexdigest())


def write(path: Path, lock: Lock, source: Path) -> None:
    """Write a lock file, sorted; none where there is nothing to lock."""
    if not lock:
        return
    lines = [HEAD.format(source=source.relative_to(ROOT))]
    for name, (version, hashes) in sorted(lock.items()):
        lines.append(
            " \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{one}" for one in sorted(hashes))]) + "\n"
        )
    path.write_text("".join(lines), encoding="utf-8")
    print(path)


def sbom(folder: Path) -> None:
    """Write a CycloneDX list of each environment's packages into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for start in SETS:
        for platform in PLATFORMS:
            out = folder / f"fedmed-{start}{platform}.cdx.json"
            command = [tool("cyclonedx-py"), "requirements", "-", "--pyproject", str(ROOT / "pyproject.toml")]
            command += ["--output-reproducible", "--output-format", "JSON", "--output-file", str(out)]
            files = [*sorted(LOCKS.glob(f"{start}{platform}*.txt")), *sorted(LOCKS.glob(f"{start}source.txt"))]
            text = "".join(path.read_text(encoding="utf-8") for path in files)
            subprocess.run(command, check=True, input=text, text=True)
            print(out)


def main() -> int:
    """Run a command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("check")
    locking = commands.add_parser("lock")
    locking.add_argument("--upgrade", action="store_true", help="take the newest versions of what is left open")
    locking.add_argument("--build", nargs="*", default=[], type=Path, help="a further wheel of a pinned version")
    commands.add_parser("sbom").add_argument("folder", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "check":
        return check()
    if arguments.command == "lock":
        lock(arguments.upgrade, arguments.build)
    else:
        sbom(arguments.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
