"""Make and renew the startup kits of a federation: the work of 'fedmed provision' and 'fedmed add-site'."""

import contextlib
import io
import json
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml
from filelock import FileLock
from nvflare.lighter.constants import CtxKey
from nvflare.lighter.prov_utils import prepare_builders
from nvflare.lighter.provision import prepare_project
from nvflare.lighter.provisioner import Provisioner

from fedmed.errors import SiteConfigError
from fedmed.provisioning.project_file import read_project
from fedmed.site_names import name_fault

RECORD = "project.yml"  # of a federation's folder: what was provisioned
PARTS = {".lock", ".gitignore", "authority", "kits"}  # what an interrupted first provisioning leaves


@dataclass
class Federation:
    """A federation's folder: ``project.yml``, ``authority/`` (the certificate authority's keys) and ``kits/``.

    Attributes:
        folder: readable by its owner only.
        project: content of its ``project.yml``; empty before the first provisioning.
    """

    folder: Path
    project: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def open(cls, folder: Path) -> "Federation":
        """Read a folder; it need not exist yet.

        Raises:
            SiteConfigError: the folder holds something else, or a damaged federation.
        """
        folder = Path(folder).expanduser().resolve()
        record = folder / RECORD
        if record.is_file():
            return cls(folder, read_project(record))
        if folder.exists() and (not folder.is_dir() or set(os.listdir(folder)) - PARTS):
            raise SiteConfigError(f"{folder} exists and is not a federation of FedMed's; choose another with --out")
        return cls(folder)

    @property
    def kits(self) -> Path:
        """One folder a participant."""
        return self.folder / "kits"

    def names(self) -> list[str]:
        """Participants that have a kit."""
        return [p["name"] for p in self.project.get("participants", [])]

    def unusable_names(self) -> list[str]:
        """Sites with a kit from before there was a rule for names: no job can name them, NVFlare makes no more kits."""
        return [p["name"] for p in self.project.get("participants", []) if _fault(p)]

    def provision(self, wanted: Mapping[str, Any]) -> list[str]:
        """Make the kits of all participants that have none yet; existing kits and the authority stay as they are.

        Returns:
            Names of the participants whose kits were made.

        Raises:
            SiteConfigError: the project is wrong, a new site cannot have its name, or the project contradicts the
                federation in this folder.
        """
        self._agrees(wanted)
        new = [p for p in wanted["participants"] if p["name"] not in self.names()]
        names = [p["name"] for p in new]
        if faults := [fault for p in new if (fault := _fault(p))]:
            raise SiteConfigError("; ".join(faults))
        if new:
            participants = [*self.project.get("participants", []), *new]
            self._build({**deepcopy(dict(wanted)), "participants": participants}, names)
        return names

    def renew(self, name: str) -> Path:
        """Give a participant a new key and a new certificate, in its kit's ``startup/``; the old one ends by itself.

        Raises:
            SiteConfigError: there is no such participant, or it is a site that cannot have its name any more.
        """
        if name in self.unusable_names():
            raise SiteConfigError(f"{name_fault(name)}; make it a kit with another name")
        if name not in self.names():
            raise SiteConfigError(f"{self.folder} has no participant '{name}'; it has: {', '.join(self.names())}")
        state = self.folder / "authority" / self.project["name"] / "state" / "cert.json"
        certificates = json.loads(state.read_text(encoding="utf-8"))
        certificates.pop(name, None)
        state.write_text(json.dumps(certificates), encoding="utf-8")
        self._build(self.project, [name])
        return self.kits / name

    def _agrees(self, wanted: Mapping[str, Any]) -> None:
        """An existing federation may only grow."""
        if not self.project:
            return
        differs = f"differs from what was provisioned before ({self.folder / RECORD})"
        for key in sorted((set(wanted) | set(self.project)) - {"participants", "description"}):
            if wanted.get(key) != self.project.get(key):
                remedy = f"{self.folder} holds a federation already; for another one choose another folder with --out"
                raise SiteConfigError(f"'{key}' {differs}; {remedy}")
        before = {p["name"]: p for p in self.project["participants"]}
        for one in wanted["participants"]:
            if before.get(one["name"], one) != one:
                remedy = "kits are not changed afterwards: edit the kit's local/, or choose a new name"
                raise SiteConfigError(f"'{one['name']}' {differs}; {remedy}")

    def _build(self, project: Mapping[str, Any], names: Iterable[str]) -> None:
        """Let NVFlare make all kits and keep those of ``names``; certificates it knows it does not make again."""
        before = os.umask(0o077)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self.folder.chmod(0o700)
            (self.folder / ".gitignore").write_text("*\n", encoding="utf-8")
            with FileLock(self.folder / ".lock"):
                buildable = [p for p in project["participants"] if not _fault(p)]
                made = _provision({**project, "participants": buildable}, self.folder / "authority")
                for name in names:
                    _take(made / name, self.kits / name)
                shutil.rmtree(made)
                text = yaml.safe_dump(dict(project), sort_keys=False)
                (self.folder / RECORD).write_text(text, encoding="utf-8")
        finally:
            os.umask(before)
        self.project = dict(project)


def _fault(participant: Mapping[str, Any]) -> str:
    return name_fault(participant["name"]) if participant["type"] == "client" else ""


def _provision(project: Mapping[str, Any], workspace: Path) -> Path:
    errors: list[str] = []
    log = SimpleNamespace(error=errors.append, **dict.fromkeys(("debug", "info", "warning"), lambda text: None))
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            plain = deepcopy(dict(project)) | {"gen_scripts": False}
            builders = prepare_builders(plain)
            context = Provisioner(str(workspace), builders).provision(prepare_project(plain), logger=log)
    except (SystemExit, Exception) as error:  # noqa: BLE001 - NVFlare raises many kinds for a wrong project
        raise SiteConfigError(f"NVFlare refuses the project: {error}") from error
    if errors or context.get(CtxKey.BUILD_ERROR):
        raise SiteConfigError(f"NVFlare could not make the kits: {'; '.join(errors) or output.getvalue()[-500:]}")
    return Path(context[CtxKey.CURRENT_PROD_DIR])


def _take(made: Path, kit: Path) -> None:
    """Put a new kit in its place; of an existing one only the certificates are replaced, as the site may be running."""
    if kit.exists():
        for source in (made / "startup").iterdir():
            if source.suffix in (".crt", ".key", ".pem"):
                shutil.copy(source, kit / "startup" / source.name)
    else:
        kit.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(made, kit)
    for path in (kit, *kit.rglob("*")):
        path.chmod(stat.S_IMODE(path.stat().st_mode) & 0o700 if path.is_dir() or os.access(path, os.X_OK) else 0o600)
