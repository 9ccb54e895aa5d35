"""Content of a project file: who takes part in a federation, and what makes the startup kits."""

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from fedmed.errors import SiteConfigError
from fedmed.settings.yaml_model import Contradictions, YamlModel, check_model, read_yaml

BUILDER = "fedmed.provisioning.kit_builder.SiteBuilder"
OLD_BUILDER = "fedmed.flare.provision.SiteBuilder"  # as federations provisioned earlier name it in their records
Role = Literal["supervised", "unsupervised", "evaluate"]


class _OpenModel(YamlModel):
    """NVFlare knows more keys than we; only what looks like a slip of the pen is refused."""

    model_config = ConfigDict(extra="allow")

    @model_validator(mode="after")
    def _has_no_slip(self) -> Self:
        slips = []
        for key in self.model_extra or {}:
            if near := get_close_matches(key, type(self).model_fields, 1, cutoff=0.8):
                slips.append((key, f"unknown key '{key}'; did you mean '{near[0]}'?"))
        if slips:
            raise Contradictions(slips)
        return self

    @field_validator("connection_security", check_fields=False)
    @classmethod
    def _is_safe(cls, security: str | None) -> str | None:
        if security not in (None, "mtls"):
            raise ValueError("FedMed's kits use certificates on both sides: remove it")
        return security


class Participant(_OpenModel):
    """A server, a site or a person; further keys are NVFlare's."""

    name: str = Field(min_length=1)
    """The server's name in DNS, a site's name in jobs (letters, digits, _ and -), a person's e-mail address."""

    type: Literal["server", "client", "admin", "relay"]
    """What it is; a site is a client."""

    org: str = Field(min_length=1)
    """Organisation: letters, digits and _."""

    role: str | None = None
    """Of a person: project_admin, lead or member."""

    fed_learn_port: int | None = Field(None, ge=1, le=65535)
    """Of the server: the one port that sites and people connect to."""

    host_names: tuple[str, ...] | None = None
    """Of the server: other names or addresses of the same machine."""

    fedmed_role: Role = "supervised"
    """Of a site: chooses the explanations in its kit; a job says who does what."""

    custom_code: bool = False
    """Whether jobs may bring a folder custom/: see docs/deployment.md."""

    connection_security: str | None = None
    """Nothing else than mtls, which is NVFlare's default."""


class KitPart(YamlModel):
    """A builder of NVFlare's."""

    path: str
    """Its class."""

    args: dict[str, Any] = {}
    """Its arguments."""


class ProjectFile(_OpenModel):
    """A federation: who takes part, and where the server is."""

    api_version: int = 3
    """NVFlare's version of this format."""

    name: str = Field(min_length=1)
    """Of the federation: letters, digits and _."""

    description: str = ""
    """For people."""

    participants: tuple[Participant, ...] = Field(min_length=1)
    """The server, the sites and the people."""

    builders: tuple[KitPart, ...] = Field(min_length=1)
    """What makes the kits; as in site_configs/project.yml."""

    connection_security: str | None = None
    """Nothing else than mtls, which is NVFlare's default."""

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if mistakes := list(self._contradictions()):
            raise Contradictions(mistakes)
        return self

    def _contradictions(self) -> Iterator[tuple[str, str]]:
        names = [participant.name for participant in self.participants]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            yield "participants", f"every entry of 'participants' needs a 'name' of its own; twice: {', '.join(twice)}"
        if not {builder.path for builder in self.builders} & {BUILDER, OLD_BUILDER}:
            yield "builders", f"'builders' does not name {BUILDER}; the kits would lack FedMed's settings"


def read_project(path: Path) -> dict[str, Any]:
    """Read and check a project file, but not the names of its sites: those in an old record stay as they are.

    Returns:
        Its content, as NVFlare wants it.

    Raises:
        SiteConfigError: everything that is wrong with it; says the file, lines and keys.
    """
    document = read_yaml(path, error=SiteConfigError)
    check_model(document, ProjectFile, error=SiteConfigError)
    builders = document.values["builders"]
    renamed = [{**one, "path": BUILDER} if one["path"] == OLD_BUILDER else one for one in builders]
    return {**document.values, "builders": renamed}
