"""The shape of a job's configurations: what FedMed writes into them, and nothing beside it.

NVFlare builds whatever a configuration names and its list of classes allows, with the arguments that stand there. The
list alone is no wall: a component that may be loaded can be asked for another event, another file, another site. So the
whole configuration is compared with the one form in which jobs are written; only the executor, its tasks and the
aggregator are a job's to choose, of FedMed's own. The module imports neither NVFlare nor PyTorch: the process of a
site that waits for jobs has it too.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from fedmed.errors import JobError

SERVER, CLIENT = "config_fed_server.json", "config_fed_client.json"
TASKS = ("train", "metadata", "validate", "release", "evaluate", "fingerprint")  # in the order in which jobs list them
LIMITS = "fedmed.flare.filters.SiteLimitsFilter"
PERSISTOR = "fedmed.flare.persistor.BundleModelPersistor"
CONTROLLER = "fedmed.flare.controller.FederationController"
TO_SERVER = "nvflare.app_common.widgets.convert_to_fed_event.ConvertToFedEvent"
TENSORBOARD = "nvflare.app_opt.tracking.tb.tb_receiver.TBAnalyticsReceiver"
FIXED = (LIMITS, PERSISTOR, CONTROLLER, TO_SERVER, TENSORBOARD)
EXECUTORS = re.compile(r"fedmed\.flare\.executors\.[A-Z][A-Za-z]*Executor")
AGGREGATORS = re.compile(r"fedmed\.flare\.aggregators\.[A-Z][A-Za-z]*Aggregator")
EVENT, PREFIX = "analytix_log_stats", "fed."  # NVFlare's event of a scalar, and what is put before it on its way
REMEDY = "write the job with fedmed study package of this version of FedMed"


def server_config(aggregator: str) -> dict[str, Any]:
    """``config_fed_server.json`` with this class as aggregator."""
    return {
        "format_version": 2,
        # Sites ask for work this often (seconds); the default of 2 would be most of a small round.
        "server": {"heart_beat_timeout": 600, "task_request_interval": 0.2},
        "task_data_filters": [],
        "task_result_filters": [],
        "components": [
            {"id": "persistor", "path": PERSISTOR, "args": {}},
            {"id": "aggregator", "path": aggregator, "args": {}},
            {"id": "tensorboard", "path": TENSORBOARD, "args": {"events": [PREFIX + EVENT]}},
        ],
        "workflows": [{"id": "controller", "path": CONTROLLER, "args": {}}],
    }


def client_config(executor: str, tasks: list[str]) -> dict[str, Any]:
    """``config_fed_client.json`` with this class as executor, for these tasks."""
    args = {"events_to_convert": [EVENT], "fed_event_prefix": PREFIX}
    return {
        "format_version": 2,
        "executors": [{"tasks": tasks, "executor": {"path": executor, "args": {}}}],
        "task_data_filters": [],
        # The site's own limits; a provisioned site has the filter in its privacy.json too, where no job reaches it.
        "task_result_filters": [{"tasks": tasks, "filters": [{"path": LIMITS, "args": {}}]}],
        "components": [{"id": "to_server", "path": TO_SERVER, "args": args}],
    }


def check_shape(config: Mapping[str, Any], file: str, what: str) -> None:
    """Refuse a configuration that is not as FedMed writes it.

    Args:
        file: its path within the job; the last part says which of the two it is.

    Raises:
        JobError: names the first place that differs, and the remedy.
    """
    if file.endswith(SERVER):
        aggregator = _chosen(config, ("components", 1, "path"), AGGREGATORS)
        place = _difference(config, server_config(aggregator))
    else:
        executor = _chosen(config, ("executors", 0, "executor", "path"), EXECUTORS)
        tasks = _at(config, ("executors", 0, "tasks"))
        known = isinstance(tasks, list) and tasks and tasks == [task for task in TASKS if task in tasks]
        place = _difference(config, client_config(executor, tasks if known else ["train"]))
    if place is not None:
        text = (
            f"{what}: {file!r} is not as FedMed writes it, at '{place}'; a job chooses no components, filters, events"
        )
        raise JobError(f"{text} or workflows of its own where sites allow no code; {REMEDY}")


def _at(value: Any, path: Collection[str | int]) -> Any:
    """Value at a path; None where there is nothing."""
    for step in path:
        try:
            value = value[step]
        except (IndexError, KeyError, TypeError):
            return None
    return value


def _chosen(config: Mapping[str, Any], path: Collection[str | int], room: re.Pattern[str]) -> str:
    """The class that a job has chosen; empty if it is none of the room, so that the place is found."""
    path_of_class = _at(config, path)
    return path_of_class if isinstance(path_of_class, str) and room.fullmatch(path_of_class) else ""


def _difference(value: Any, wanted: Any, place: str = "") -> str | None:
    """First place where two values differ; None where they are equal, in type too (1 is not true)."""
    if isinstance(value, dict) and isinstance(wanted, dict):
        for key in [*wanted, *(key for key in value if key not in wanted)]:
            inner = f"{place}.{key}" if place else str(key)
            if key not in value or key not in wanted:
                return inner
            if (deeper := _difference(value[key], wanted[key], inner)) is not None:
                return deeper
        return None
    if isinstance(value, list) and isinstance(wanted, list):
        for number, pair in enumerate(zip(value, wanted, strict=False)):
            if (deeper := _difference(*pair, f"{place}[{number}]")) is not None:
                return deeper
        return None if len(value) == len(wanted) else f"{place}[{min(len(value), len(wanted))}]"
    return None if type(value) is type(wanted) and value == wanted else place
