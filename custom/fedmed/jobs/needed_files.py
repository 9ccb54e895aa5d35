"""Files that a study needs from outside, for ``fedmed fetch-list``: nothing of them is ever downloaded."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.digests import sha256_of
from fedmed.bundles.external_files import ExternalFile, external_files
from fedmed.bundles.site_facts import attributes_needed
from fedmed.errors import JobError
from fedmed.files import MODELS, folders_of
from fedmed.jobs.job import Job
from fedmed.settings.site import SiteConfig

SAYS_MORE = "`fedmed fetch-list STUDY` says where it is from"
OWN_RUN = (
    "a run of your own: FL_global_model.pt or best_FL_global_model.pt of an earlier job's result, or models/ of an "
    "exported bundle; `fedmed simulate JOB --models RUN` takes it from a run"
)
NOT_LISTED = "the bundle lists no file of this name: whoever wrote the study says where it is from"


@dataclass(frozen=True)
class NeededFile:
    """A file, or folder, that a study needs from outside.

    Attributes:
        name: of the file, as the study or a site names it.
        what: that it holds, in words.
        key: key of the study, or setting of the site's YAML, that asks for it.
        machine: ``server``, or the sites that need it, such as ``every site``.
        places: where it may lie; the first is the usual one.
        source: page or address where it is published; it is never fetched.
        licence: under which it may be used.
        sha256: of the file, all 64 digits or its beginning; None where none is known.
        unverified: why no whole SHA-256 is known; empty where one is.
        bytes: its size, where it is known or the file is here.
        found: where it lies on this machine; None where it does not.
        known: false where this machine cannot tell, since the file belongs to sites.
        digest: SHA-256 of the file that was found; None for a folder.
    """

    name: str
    what: str
    key: str
    machine: str
    places: tuple[str, ...]
    source: str
    licence: str
    sha256: str | None = None
    unverified: str = ""
    bytes: int | None = None
    found: Path | None = None
    known: bool = True
    digest: str | None = None

    @property
    def present(self) -> bool:
        """True where it lies on this machine."""
        return self.found is not None

    @property
    def differs(self) -> bool:
        """True where the file that was found is not the published one."""
        return self.digest is not None and self.sha256 is not None and not self.digest.startswith(self.sha256)

    @property
    def state(self) -> str:
        """Words for what this machine has of it."""
        if self.differs:
            return f"differs: SHA-256 {self.digest}; copy it again"
        if self.present:
            return "here, and as published" if self.digest and self.sha256 else "here, not verified"
        return "missing" if self.known else "each site knows: fedmed site check"


def needed_files(job: Job, site: SiteConfig | None = None) -> list[NeededFile]:
    """Every file that a study needs from outside, the server's first; none where it needs none.

    Args:
        site: a site's settings, with which its own files are looked for too.

    Raises:
        BundleError: the bundle is not installed, or says wrongly which files it can use.
        JobError: the study names a file by a path.
    """
    return [_looked_for(one) for one in (*_of_server(job), *_of_sites(job, site))]


def model_folders(bundle: Bundle) -> list[Path]:
    """Folders in which the server looks for what a study starts from."""
    return [*folders_of("models", MODELS), bundle.root / "models"]


def find_model(bundle: Bundle, key: str, name: str, content: str = "") -> Path:
    """Path of the file that a study starts from, at the server.

    Args:
        key: of the study, ``checkpoint`` or ``encoder``.
        name: that it says.
        content: sentence about such a file, for the error.

    Raises:
        JobError: not a plain file name, there is no such file, or it is not the one that was published.
    """
    folders = model_folders(bundle)
    check_file_name(key, name, folders[0])
    path = next((folder / name for folder in folders if (folder / name).is_file()), None)
    if path is None:
        looked = " or ".join(map(str, folders))
        raise JobError(f"{key} '{name}' is not in {looked}; put it there, at the server{content}. {SAYS_MORE}")
    for listed in external_files(bundle):
        if listed.name == name and listed.sha256 and listed.differs(digest := sha256_of(path)):
            raise JobError(
                f"{key} {path} is not the published file: its SHA-256 is {digest}, that of {listed.source} "
                f"{'is' if len(listed.sha256) == 64 else 'begins with'} {listed.sha256}; copy it again, or give a "
                "file of your own another name"
            )
    return path


def check_file_name(key: str, name: object, folder: Path) -> None:
    """Refuse a path where a study must name a file.

    Raises:
        JobError: it is not a plain file name; says where the file belongs.
    """
    if not isinstance(name, str) or not re.fullmatch(r"\w[\w.-]*", name):
        raise JobError(f"{key} {name!r} is not a plain file name; put the file into {folder} and name it")


def _of_server(job: Job) -> Iterator[NeededFile]:
    bundle = job.bundle(job.model_role)
    folders = model_folders(bundle)
    for key, name in (("checkpoint", job.study.checkpoint), ("encoder", job.study.encoder)):
        if name is None:
            continue
        check_file_name(key, name, folders[0])
        listed = next((one for one in external_files(bundle) if one.name == name), None)
        places = tuple(str(folder / name) for folder in folders)
        if listed is not None:
            yield _of_listed(listed, key, "server", places)
        elif key == "checkpoint":
            what = "the tensors that the network starts from"
            note = "it is made by a run: compare it with sha256sum where it was made"
            yield NeededFile(name, what, key, "server", places, OWN_RUN, "that of the run", unverified=note)
        else:
            what = "weights that fill the network's encoder"
            note = "the bundle does not know it: compare it with what its publisher tells"
            yield NeededFile(name, what, key, "server", places, NOT_LISTED, "not known", unverified=note)


def _of_sites(job: Job, site: SiteConfig | None) -> Iterator[NeededFile]:
    """Files that the words of a site name, once for all roles that need them alike."""
    found: dict[str, tuple[ExternalFile, list[str]]] = {}
    for role in sorted(set(job.study.sites.values())):
        bundle = job.bundle(role)
        files = [one for one in external_files(bundle) if one.word]
        if not files:
            continue
        parser = bundle.parser()
        words = attributes_needed(parser)
        for one in files:
            if one.word in words and all(parser.get(key) == value for key, value in one.when.items()):
                found.setdefault(one.name, (one, []))[1].extend(job.study.of_role(role))
    for one, sites in found.values():
        key, named = f"words.{one.word} of the site's YAML", None if site is None else site.words.get(one.word)
        where = f"<data_root>/<{one.word}>" if named is None or site is None else str(site.data_root / named)
        machine = "every site" if len(sites) == len(job.study.sites) else ", ".join(sorted(sites))
        yield replace(_of_listed(one, key, machine, (where,)), name=named or one.name, known=named is not None)


def _of_listed(file: ExternalFile, key: str, machine: str, places: tuple[str, ...]) -> NeededFile:
    short = "only its beginning is known, which the publisher's name of the file holds"
    unverified = file.unverified or ("" if len(file.sha256) == 64 else short)
    return NeededFile(
        *(file.name, file.what, key, machine, places, file.source, file.licence, file.sha256 or None),
        *(unverified, file.bytes),
    )


def _looked_for(file: NeededFile) -> NeededFile:
    """The same with what this machine has of it."""
    path = next((Path(place) for place in file.places if Path(place).exists()), None) if file.known else None
    if path is None:
        return file
    if path.is_dir():
        return replace(file, found=path)
    return replace(file, found=path, bytes=path.stat().st_size, digest=sha256_of(path))


def in_lines(file: NeededFile) -> Iterator[str]:
    """Lines that tell a person of a file: name and state, then what it is and where it must lie."""
    yield f"{file.name}: {file.state}"
    yield f"    what      {file.what}"
    yield f"    needed    by '{file.key}', at {'the ' if file.machine == 'server' else ''}{file.machine}"
    yield f"    place     {' or '.join(file.places)}"
    yield f"    source    {file.source}"
    yield f"    licence   {file.licence}"
    known = file.sha256 or "none"
    said = f"{known}…" if file.sha256 and len(file.sha256) < 64 else known
    yield f"    SHA-256   {said}{f' ({file.unverified})' if file.unverified else ''}"
    if file.bytes is not None:
        yield f"    size      {file.bytes:,} bytes"
