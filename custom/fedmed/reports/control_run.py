"""The controls beside a run: the same job whose sites without labels are left out, or learn nothing."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmed.errors import FedMedError, JobError
from fedmed.methods.control_kinds import ADAPTED, FOLDERS, LEFT_OUT, OPTIONS, SUFFIXES, kind_of_control
from fedmed.methods.find_method import method_spec, study_of_run
from fedmed.reports.gain import steps
from fedmed.reports.run import known_method, read_run
from fedmed.reports.run_contents import Run

DIFFERS = {  # what is another in a control, or only says how long a run took to get to its end
    # What the overrides of labelled sites are, is told by the model.
    "study": {
        "name",
        "sites",
        "min_clients",
        "resume",
        "max_failed_rounds",
        "task_timeout",
        "user_weights",
        "overrides",
        "gain",
        "fingerprint",
    },
    "rule": {"user_weights"},
    "model": set[str](),
}


def read_with_controls(folder: str | Path, controls: Sequence[str | Path] = ()) -> Run:
    """Read a run and its controls, if it has any.

    Args:
        folder: of the run.
        controls: their folders; by default ``control`` and ``control_adapted`` in that of the run. There, one that is
            damaged or unfinished does not keep the run from being reported: ``control_problems`` says what is wrong.

    Raises:
        JobError, FedMedError: as :func:`fedmed.reports.run.read_run`; or a folder that was named does not hold a
            finished control of the run, or another one does not go with it.
    """
    run, accepted = read_run(folder), dict[str, Run]()
    folders = [run.folder / name for name in dict.fromkeys(FOLDERS.values())]
    # A site may have the name of a control's folder, but no folder 'server'.
    for place in map(Path, controls or [folder for folder in folders if (folder / "server").is_dir()]):
        try:
            control = read_run(place)
            check_control(run, control)
            _check_pair(kind := kind_of(control), control, accepted)
            if not steps(run, {kind: control}):
                raise JobError(f"neither {run.folder} nor the control in {place} was scored at any site")
            accepted[kind] = control
        except FedMedError as error:
            if controls:
                raise
            run.control_problems.append(str(error))
    if accepted:
        run.steps = steps(run, {kind: accepted[kind] for kind in SUFFIXES if kind in accepted})
    return run


def kind_of(control: Run) -> str:
    """The kind of a control; in a silent one of FedMed 0.1 sites adapt, if they do in the run."""
    kind = kind_of_control(control.job)
    return ADAPTED if kind != LEFT_OUT and control.adapts else kind


def _check_pair(kind: str, control: Run, earlier: Mapping[str, Run]) -> None:
    """Refuse a second control of those that adapt, or of those that do not: what each step adds would not be known."""
    for other, read in earlier.items():
        if (kind == ADAPTED) == (other == ADAPTED):
            raise JobError(
                f"the controls in {read.folder} and {control.folder} cannot both be compared: in "
                f"{'both' if kind == ADAPTED else 'neither'} sites adapt; give one in which they do, and one without"
            )


def check_control(run: Run, control: Run) -> None:
    """Refuse what is not the control of a run.

    Raises:
        JobError: it did not reach its end, sites learn without labels in it or not in the run, or it is of another job.
    """
    where, kind = f"the control in {control.folder}", kind_of_control(control.job)
    learning = [site.name for site in control.by_role("unsupervised")] if kind == LEFT_OUT else []
    if not run.by_role("unsupervised"):
        raise JobError(f"{where} has nothing to tell: in {run.folder} no site trains without labels")
    if learning:
        raise JobError(f"{where} is none: {learning[0]} trains without labels in it too; give a run without such sites")
    if [site.name for site in run.by_role("supervised")] != [site.name for site in control.by_role("supervised")]:
        raise JobError(f"{where} is of another job than {run.folder}: other sites train with labels in it")
    ours = run.config if control.adapts or kind == ADAPTED else _unadapted(run)
    if kind == ADAPTED and _trained_as_left_out(run, control):
        ours = {**ours, "study": {**ours["study"], "warm_start": control.config["study"]["warm_start"]}}
    if problems := differences(ours, control.config):
        raise JobError(f"{where} is of another job than {run.folder}: {'; '.join(problems)}")
    if control.result is None:
        raise JobError(
            f"{where} did not reach its end: {len(control.rounds)} of {control.total_rounds} rounds are done; "
            f"fedmed simulate JOB {OPTIONS[kind]} --resume goes on with it"
        )


def _trained_as_left_out(run: Run, control: Run) -> bool:
    """Tell whether in a control the updates of sites without labels would do nothing, so that none trains."""
    if not (rule := run.config.get("rule")) or control.warm_rounds != control.total_rounds:
        return False
    return not run.method.moved_by_silent(rule)


def _unadapted(run: Run) -> dict[str, Any]:
    """Record of a run as it would be without its adaptation, of which its labelled sites may have a part."""
    if not run.adapts:
        return run.config
    plain = _plain(run.study)
    method, model = known_method({"config": {"study": plain}}), dict(run.config.get("model") or {})
    added = set(run.method.role("supervised").overlays) - set(method.role("supervised").overlays)
    settings = set(run.method.settings("supervised")) - set(method.settings("supervised"))
    if "overlays" in model:
        model["overlays"] = [overlay for overlay in model["overlays"] if overlay not in added]
    if "overrides" in model:
        model["overrides"] = {key: value for key, value in model["overrides"].items() if key not in settings}
    return {**run.config, "study": plain, "model": model}


def _plain(study: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a study without its adaptation."""
    spec, kept = method_spec(study), {key: value for key, value in study.items() if key != "adaptation"}
    return kept if "algorithm" in spec else {key: value for key, value in kept.items() if key != "algorithm"}


def differences(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """Return what should be equal in a run and its control but is not: ``'rounds' is 14 and 8``.

    Args:
        ours, theirs: what ``run.json`` has of study, rule and model; of rule and model, what both say is compared.
    """
    texts = []
    for part, may in DIFFERS.items():
        first, second = (_compared(part, json.loads(json.dumps(config))) for config in (ours, theirs))
        keys = set(first) | set(second) if part == "study" else set(first) & set(second)
        for key in sorted(keys - may):
            if first.get(key) != second.get(key):
                one, other = (repr(said[key]) if key in said else "the default" for said in (first, second))
                texts.append(f"'{key}' is {one} and {other}")
    return texts


def _compared(part: str, config: dict[str, Any]) -> dict[str, Any]:
    """A part of a record, of a study with method, algorithm and adaptations under their names of today."""
    if part == "rule":
        return dict((config.get("rule") or {}).get("args") or {})
    if part == "model":
        return config.get("model") or {}
    study = study_of_run(config)
    spec = method_spec(study)
    said = {key: value for key, value in study.items() if key not in ("algorithm", "adaptation")}
    return {**said, **({"method": spec} if spec else {})}
