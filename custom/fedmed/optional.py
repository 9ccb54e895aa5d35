"""Packages that only some studies need: the extra of FedMed that brings each, and an error where one is missing."""

import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from fedmed.errors import FedMedError, MissingPackage
from fedmed.files import CHECKOUT

NAME = "fedmed"
NOT_OF_STUDIES = {"demo", "research", "dev", "cluster"}  # extras for people who make data, tables or FedMed itself


@contextmanager
def needs(extra: str, what: str, error: type[FedMedError] = MissingPackage) -> Iterator[None]:
    """Guard imports: ``with needs("video", "videos"): import av``.

    Args:
        extra: that brings the package.
        what: that needs it, in the plural.

    Raises:
        FedMedError: of the type ``error``: a module is not installed; names it, and the line of pip.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        module = (missing.name or str(missing)).partition(".")[0]
        raise error(f"{what} need the package {module}, which is missing here: {pip_line([extra])}") from missing


def pip_line(extras: Iterable[str], packages: Iterable[str] = ()) -> str:
    """Command that installs extras of FedMed, and packages that are in none; empty for nothing."""
    named = ",".join(dict.fromkeys(extras))
    wanted = [f"{NAME}[{named}]"] if named else []
    shown = " ".join(f"'{one}'" for one in [*wanted, *packages])
    return f"pip install {shown}" if shown else ""


def packages_of_extras() -> dict[str | None, frozenset[str]]:
    """Normalised names of the packages of each extra, and below None of those that FedMed always has.

    Of a checkout, which may be newer than what pip noted of it, they are read from its ``pyproject.toml``, unless that
    leaves them to the build.
    """
    project = CHECKOUT / "pyproject.toml"
    if project.is_file():
        content = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {})
        if content.get("name") == NAME and "dependencies" not in content.get("dynamic", ()):
            said = {None: content.get("dependencies", []), **content.get("optional-dependencies", {})}
            return {extra: _names(lines) for extra, lines in said.items()}
    try:
        installed = distribution(NAME)
    except PackageNotFoundError:
        return {None: frozenset()}
    lines, extras = installed.requires or [], installed.metadata.get_all("Provides-Extra") or []
    always_lines = [line for line in lines if _holds(line, "")]
    only = {extra: [line for line in lines if _holds(line, extra) and line not in always_lines] for extra in extras}
    return {None: _names(always_lines)} | {extra: _names(lines) for extra, lines in only.items()}


def extras_for(packages: Collection[str], offered: Mapping[str | None, Collection[str]]) -> tuple[list[str], list[str]]:
    """Choose few extras that bring packages; return them, sorted, and the packages that no extra brings.

    Args:
        packages: names; those that FedMed always has need no extra.
        offered: as :func:`packages_of_extras` returns it.
    """
    of_studies = {
        extra: set(names) for extra, names in offered.items() if extra is not None and extra not in NOT_OF_STUDIES
    }
    open_ = {canonicalize_name(name) for name in packages} - set(offered.get(None, ()))
    places = {name: [extra for extra in of_studies if name in of_studies[extra]] for name in open_}
    chosen: set[str] = set()
    for name in sorted(open_, key=lambda name: (len(places[name]), name)):  # first those that leave no choice
        if places[name] and not chosen & set(places[name]):
            chosen.add(max(sorted(places[name]), key=lambda extra: len(of_studies[extra] & open_)))
    return sorted(chosen), sorted(name for name in open_ if not places[name])


def _holds(line: str, extra: str) -> bool:
    marker = Requirement(line).marker
    return marker is None or marker.evaluate({"extra": extra})


def _names(lines: Iterable[str]) -> frozenset[str]:
    names = (canonicalize_name(Requirement(line).name) for line in lines)
    return frozenset(name for name in names if name != NAME)  # an extra may be made of others
