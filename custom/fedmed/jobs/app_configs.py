"""The files of an NVFlare job folder. The study says everything; FLARE's own files name classes and tasks."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from monai.bundle import ConfigParser

from fedmed.aggregation.rule import ExpectedSenders
from fedmed.aggregation.sharing import FULL, NORM, SharingPolicy
from fedmed.bundles.bundle import Bundle, server_bundle
from fedmed.bundles.bundle_parser import named_tensors, parsed
from fedmed.bundles.contract import PROVIDER, Use, faults, unknown_parts
from fedmed.class_paths import build
from fedmed.errors import BundleError, FedMedError, JobError, OverrideError
from fedmed.jobs.app_shape import client_config, server_config
from fedmed.jobs.job import STUDY, Job
from fedmed.jobs.job_classes import PARTIAL
from fedmed.jobs.job_meta import job_meta
from fedmed.jobs.rule_spec import RULE_ROOMS, load_rule, step_spec
from fedmed.kinds.find_kind import kind_of
from fedmed.methods.declarations import ROLES
from fedmed.methods.method import MEAN, at_server

TENSOR = "*"  # stands for all: of the network nothing is known where a job is written
CUSTOM_README = """\
This folder holds no code: the job's classes come from the installed package `fedmed`. NVFlare loads classes outside its
built-in list only when an app has a `custom/` folder with something in it. For sites that forbid custom code, leave the
folder out and list the classes in the site's `class_allow_list`.
"""


def files(job: Job) -> dict[str, str]:
    """Relative path -> text of every file of the job folder, checked against the installed bundle.

    Raises:
        JobError: the job could not run as described; says everything that does not fit.
    """
    job.refuse(_validation_errors(job))
    roles = [role for role in ROLES if job.study.of_role(role)]
    meta = job_meta(job.study.name, job.study.sites, job.study.min_clients)
    server = server_config(job.method.aggregator if job.all_shared else PARTIAL)
    made = {"meta.json": _json(meta), "app_server/config/config_fed_server.json": _json(server)}
    for role in roles:
        made[f"app_{role}/config/config_fed_client.json"] = _json(role_config(job, role))
    for app in ["server", *roles]:
        made[f"app_{app}/config/{STUDY}"] = job.text
    for app in ["server", *roles] if job.study.custom else []:
        made[f"app_{app}/custom/README.md"] = CUSTOM_README
    return made


def role_config(job: Job, role: str) -> dict[str, Any]:
    """``config_fed_client.json`` of a role, with the tasks that its sites may get."""
    tasks: Mapping[str, bool] = {
        "train": True,
        "metadata": job.exchange.sends(role),
        "validate": True,
        "release": bool(job.study.release_from) and role == "supervised",
        "evaluate": True,
        "fingerprint": job.study.fingerprint,
    }
    return client_config(job.method.role(role).executor, [task for task, wanted in tasks.items() if wanted])


def _validation_errors(job: Job) -> Iterator[tuple[str, str]]:
    """Yield what the study asks for and the installed bundle or the server's rule lacks; each with its key."""
    bundles: dict[str, Bundle] = {}
    seen: set[str] = set()
    for role in dict.fromkeys([job.model_role, *sorted(set(job.study.sites.values()))]):
        try:
            bundle = bundles[role] = job.bundle(role)
        except BundleError as error:
            if str(error) in seen:  # of another role, such as that there is no such bundle
                continue
            seen.add(str(error))
            key = "overlays" if job.study.overlays else "bundle"
            key = "role_overlays" if role in job.study.role_overlays else key
            yield "overrides" if isinstance(error, OverrideError) else key, f"role '{role}': {error}"
            continue
        if job.exchange.sends(role):
            lacks = unknown_parts(bundle.parser(), PROVIDER)
            yield from (("bundle", f"bundle '{bundle.name}': {text}") for text in lacks)
        if job.study.classes and (
            validation_error := kind_of(bundle).validation_error([one.name for one in bundle.classes])
        ):
            yield "classes", validation_error
        if role == job.model_role and (validation_error := _lacks_server_training(job, bundle)):
            yield "method", validation_error
        groups = bundle.federation.get("sharing", {})
        known = sorted({NORM, *(group for network in groups.values() for group in network)})
        wanted = {job.group(role), job.method.role(role).sends, job.study.warm_start.sharing}
        for group in sorted(name for name in wanted if name not in (None, FULL)):
            said = f"sharing group '{group}' is not in bundle '{bundle.name}'; it has {', '.join(known)}"
            if said := said if group not in known else _nothing_private(bundle, group):
                yield "algorithm" if group == job.method.role(role).receives else "sharing", f"role '{role}': {said}"
    yield from (("overrides", text) for text in role_differences(bundles))
    yield from _rule_errors(job)


def _nothing_private(bundle: Bundle, group: str) -> str:
    """Say why a sharing group is none of this network, such as ``norm`` of one without such layers; empty where it is.

    Empty too where only a site can build the network, which then says it when it starts.
    """
    try:
        network = parsed(bundle.parser(), "network")
    except BundleError:
        return ""
    groups = bundle.groups(network)
    try:
        SharingPolicy.from_groups(named_tensors(network), group, groups)
    except FedMedError as error:
        return f"bundle '{bundle.name}': {error}; its {type(network).__name__} has {', '.join(sorted(groups))}"
    return ""


def _lacks_server_training(job: Job, bundle: Bundle) -> str:
    """Say what is missing where the server trains too; empty where nothing is."""
    if (said := job.method.server_training()) is None:
        return ""
    try:
        lacks = faults(server_bundle(bundle, said), Use(labels=False, trains_mean=True))
    except BundleError as error:
        lacks = [str(error)]
    return f"{job.method.title} trains at the server: {lacks[0]}" if lacks else ""


def _rule_errors(job: Job) -> Iterator[tuple[str, str]]:
    """A rule must find the senders that it needs in the warm start and in what follows."""
    study = job.study
    if at_server(study.buffers) == "pooled" and job.rule["path"] != MEAN:
        yield "buffers", f"'buffers' is 'pooled', which {job.rule['path']} cannot do; use 'average' or 'local'"
    try:
        if (step := study.server_step) is not None:
            build(step_spec(step), RULE_ROOMS, job.allowed)
    except JobError as error:
        yield "server_step", str(error)
        return
    for round in sorted({0, study.rounds - 1}):
        sent = {site: [TENSOR] for site in study.participants(round)}
        try:
            load_rule(job.rule, job.allowed).check(ExpectedSenders(study.sites, sent, study.max_norm))
        except JobError as error:
            yield "rule", "'rule': " + str(error).replace(f"tensor '{TENSOR}'", f"in round {round + 1} every tensor")
            return


def _json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"


def role_differences(bundles: Mapping[str, Bundle]) -> Iterator[str]:
    """Say what a bundle lists as ``alike`` and the job gives to its roles unlike.

    Args:
        bundles: role -> the bundle with the overlays and overrides that the role gets; roles whose bundle does not open
            are missing, and told of elsewhere.

    Raises:
        BundleError: a bundle's ``alike`` names an id that it does not have.
    """
    for first, one in list(bundles.items())[:1]:
        parsers = {role: bundle.parser() for role, bundle in bundles.items()} if one.alike else {}
        for key in one.alike:
            values = {role: _value(bundle, parsers[role], key) for role, bundle in bundles.items()}
            expected = values[first]
            yield from (
                f"'{key}' is {expected} for the role '{first}' and {value} for '{role}', and one model would see "
                f"images of two kinds; give both the same '{key}'"
                for role, value in values.items()
                if value != expected
            )


def _value(bundle: Bundle, parser: ConfigParser, key: str) -> Any:
    """Value of an id in a bundle's configuration; tuples and lists count alike."""
    if key not in parser:
        raise BundleError(f"bundle '{bundle.name}': 'alike' in federation.yaml lists '{key}', which no file has")
    value = parser.get_parsed_content(key)
    return list(value) if isinstance(value, tuple) else value
