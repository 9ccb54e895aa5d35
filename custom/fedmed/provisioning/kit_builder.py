"""Builder of what FedMed adds to NVFlare's startup kits, named in ``site_configs/project.yml``."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from nvflare.lighter import entity
from nvflare.lighter.entity import Project
from nvflare.lighter.spec import Builder, ProvisionContext

from fedmed.errors import SiteConfigError
from fedmed.files import SHIPPED
from fedmed.jobs.app_shape import LIMITS
from fedmed.provisioning.project_file import Participant, Role
from fedmed.settings.yaml_model import Document, check_model

TEMPLATES = SHIPPED / "site_configs" / "templates"
# First of all parts: they work from the moment they are built, and what a job brings is read later.
WALLS = (
    {"id": "json_only", "path": "fedmed.flare.json_only.JsonOnly", "args": {}},
    {"id": "plain_jobs", "path": "fedmed.flare.job_gate.PlainJobs", "args": {}},
)
MESSAGES = {"id": "site_messages", "path": "fedmed.flare.site_messages.SiteMessages", "args": {}}  # of sites alone
# seconds; NVFlare's own are 600, 10 and 900
HEART_BEAT_TIMEOUT = 120  # silence after which a site counts as gone
ADMIN_TIMEOUT = 30.0  # for a site's answer to a command, such as taking a job
OUTCOME_TIMEOUT = 60.0  # of a finished job for the last word of a site
NEEDS: dict[Role, str] = {
    "supervised": "This site has images with masks. Its datalist needs 'training', 'validation' and best 'testing'.",
    "unsupervised": "This site has images without labels: its datalist needs 'unlabeled'; lists with labels serve too.",
    "evaluate": "This site is only scored: its datalist needs 'testing', images with masks. It trains nothing.",
}
SCOPE = {"properties": {}, "task_data_filters": [], "task_result_filters": [{"path": LIMITS, "args": {}}]}
PRIVACY = {"scopes": [{"name": "site", **SCOPE}], "default_scope": "site"}


class SiteBuilder(Builder):
    """Fills the ``local/`` folder of servers' and sites' kits. It comes after ``StaticFileBuilder``.

    A participant's own keys in the project: ``fedmed_role`` of a site, and ``custom_code``, whether jobs may bring a
    folder ``custom/``. What NVFlare calls ``….default`` keeps that name: a copy without it takes precedence.
    """

    def initialize(self, project: Project, ctx: ProvisionContext) -> None:
        """Refuse a project that would be unsafe or that we cannot explain, also one that NVFlare itself was given."""
        for one in project.get_all_participants():
            facts = {"name": one.name, "type": one.type, "org": one.org}
            facts["connection_security"] = one.get_prop_fb("connection_security")
            document = Document(f"participant '{one.name}'", {**one.props, **facts})
            check_model(document, Participant, error=SiteConfigError)

    def build(self, project: Project, ctx: ProvisionContext) -> None:
        """Write the additions."""
        if server := project.get_server():
            local = Path(ctx.get_local_dir(server))
            _change(local / "resources.json.default", _server_resources)
            _authorize(local, "server_authorization.json", server)
            shutil.copyfile(TEMPLATES / "fedmed_server.yaml", local / "fedmed_server.yaml")
        for site in project.get_clients():
            local = Path(ctx.get_local_dir(site))
            _change(local / "resources.json.default", _site_resources)
            _authorize(local, "site_authorization.json", site)
            _write(local / "privacy.json", PRIVACY)
            (local / "privacy.json.sample").unlink(missing_ok=True)
            text = (TEMPLATES / "fedmed_site.yaml").read_text(encoding="utf-8")
            needs = NEEDS[site.get_prop("fedmed_role", "supervised")]
            text = text.replace("{site}", site.name).replace("{needs}", needs)
            (local / "fedmed_site.yaml").write_text(text, encoding="utf-8")


def _server_resources(resources: dict[str, Any]) -> None:
    _allow(resources)
    resources["servers"][0] |= {"heart_beat_timeout": HEART_BEAT_TIMEOUT, "admin_timeout": ADMIN_TIMEOUT}
    storage = resources["snapshot_persistor"]["args"]["storage"]
    storage |= {"path": "fedmed.flare.kit.KitStorage", "args": {"root_dir": "store/snapshots", "uri_root": "/"}}
    parts = _by_id(resources)
    parts["job_manager"]["path"] = "fedmed.flare.kit.KitJobs"
    parts["job_manager"]["args"]["uri_root"] = "store/jobs"
    parts["job_scheduler"]["args"]["max_jobs"] = 1  # two at a time would share each site's memory
    parts.pop("log_receiver", None)  # it writes into folders that a site names, and no site of ours sends logs
    args = {"client_outcome_wait_timeout": OUTCOME_TIMEOUT}
    timeouts = {"id": "timeouts", "path": "fedmed.flare.kit.ServerTimeouts", "args": args}
    lost = {"id": "lost_processes", "path": "fedmed.flare.lost_processes.LostProcesses", "args": {}}
    resources["components"] = [*WALLS, *parts.values(), timeouts, lost]


def _site_resources(resources: dict[str, Any]) -> None:
    _allow(resources)
    resources["allow_log_streaming"] = False  # an error's text may name a patient
    parts = _by_id(resources)
    parts.pop("site_log_streamer", None)
    closed = {"id": "no_remote_reading", "path": "fedmed.flare.kit.NoRemoteReading", "args": {}}
    resources["components"] = [*WALLS, MESSAGES, *parts.values(), closed]


def _allow(resources: dict[str, Any]) -> None:
    # Here and not above: it loads PyTorch, for which a mistake in a project file need not wait.
    from fedmed.jobs.job_classes import job_classes

    resources["class_allow_list"] = job_classes()  # of what NVFlare lists itself, what FedMed's jobs name alone
    resources["class_list_enforcement_mode"] = "enforce"


def _by_id(resources: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    return {part["id"]: part for part in resources["components"]}


def _authorize(local: Path, template: str, participant: entity.Participant) -> None:
    policy = json.loads((TEMPLATES / template).read_text(encoding="utf-8"))
    if participant.get_prop("custom_code", False):
        for rights in policy["permissions"].values():
            if "byoc" in rights:
                rights["byoc"] = "any"
    _write(local / "authorization.json.default", policy)


def _change(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    change(content)
    _write(path, content)


def _write(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
