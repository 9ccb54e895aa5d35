"""What a study cannot mean, whatever bundle is installed: keys that are right each, but not together."""

from collections.abc import Iterator

from fedmed.jobs.plan import TRAINING_ROLES
from fedmed.jobs.study import Study
from fedmed.methods.lent_layers import ALL_SITES

Found = Iterator[tuple[str, str]]  # key at which the line is shown, and a sentence that names all keys concerned


def contradictions(study: Study) -> Found:
    """Every contradiction of a study with itself."""
    yield from _of_sites(study)
    yield from _of_classes(study)
    yield from _of_result(study)
    yield from _of_length(study)
    if not isinstance(study.buffers, str) and {"average", "pooled"} <= {*study.buffers.values()}:
        yield "buffers", "'buffers' has 'average' and 'pooled'; the server does one of them with all that it is sent"
    if study.checkpoint_tensors and not study.checkpoint:
        yield "checkpoint_tensors", "'checkpoint_tensors' says what is taken from a 'checkpoint'; name that too"
    if study.encoder and study.checkpoint:
        yield "encoder", "'encoder' and 'checkpoint' both say where the model starts from; leave one of them out"
    if study.server_step is not None and study.rule and "step" in study.rule.args:
        yield (
            "server_step",
            "'server_step' and 'rule.args.step' both name the server's optimizer; leave one of them out",
        )
    if study.clip_norm and study.max_norm is not None and study.clip_norm >= study.max_norm:
        bound = f"'max_norm' refuses from {study.max_norm:g} on"
        yield "clip_norm", f"'clip_norm' {study.clip_norm:g} never acts: {bound}; lower it"


def _of_sites(study: Study) -> Found:
    training = study.of_role(*TRAINING_ROLES)
    if not training:
        yield "sites", "'sites': none trains; at least one must be 'supervised' or 'unsupervised'"
    if study.min_clients is not None and study.min_clients > len(training):
        yield "min_clients", f"'min_clients' is {study.min_clients}; the job has {len(training)} training sites"
    if unknown := sorted(set(study.user_weights) - set(study.sites)):
        known = ", ".join(sorted(study.sites))
        yield "user_weights", f"'user_weights' is for '{unknown[0]}', which is not one of the sites: {known}"
    if study.resume and (lost := [site for site in study.resume.fresh if site not in training]):
        yield "resume", f"'resume.fresh' names '{lost[0]}', which does not train in this job; correct or remove it"


def _of_classes(study: Study) -> Found:
    names = [one.name for one in study.structures]
    if twice := [name for name in names if names.count(name) > 1]:
        yield "classes", f"'classes' names '{twice[0]}' twice; leave one of them out"
    for role, values in study.overrides.items():
        if said := values.get("classes"):
            shown = ", ".join(map(str, said)) if isinstance(said, list) else str(said)
            yield "overrides", f"'overrides.{role}.classes': classes are the whole study's; write 'classes: [{shown}]'"


def _of_result(study: Study) -> Found:
    """Which model is the result, and how it is tested."""
    labelled = study.of_role("supervised")
    if not labelled and study.select != "last":
        use = "choose" if study.select == "best" else "score it"
        yield (
            "select",
            f"'select' is '{study.select}', but no site is 'supervised', by whose labels to {use}; use 'last'",
        )
    if study.evaluate_last and (study.select == "last" or not study.evaluate):
        needs = "'select': 'best' or 'mean', and 'evaluate': true"
        yield "evaluate_last", f"'evaluate_last' needs {needs}; set them, or leave it out"
    if study.evaluate_first and not study.evaluate:
        yield "evaluate_first", "'evaluate_first' needs 'evaluate': true; set it, or leave 'evaluate_first' out"
    if study.patience is not None and study.select != "best":
        yield "patience", "'patience' waits for better scores, which only 'select': 'best' asks for; leave it out"
    yield from _of_mean(study)
    yield from _of_release(study, labelled)


def _of_mean(study: Study) -> Found:
    if study.select != "mean":
        if "mean_rounds" in study.model_fields_set:
            yield "mean_rounds", "'mean_rounds' is for 'select': 'mean'; set that, or leave 'mean_rounds' out"
    elif study.mean_rounds > (there := study.rounds - study.warm_start.rounds):
        after = " after the warm start" if study.warm_start.rounds else ""
        yield "mean_rounds", f"'mean_rounds' is {study.mean_rounds}, but there are {there} rounds{after}; lower it"


def _of_release(study: Study, labelled: list[str]) -> Found:
    said, known = study.release_from, ", ".join(labelled)
    if said == ALL_SITES and ALL_SITES in study.sites:
        yield "release_from", f"'release_from' is '{ALL_SITES}', which is a site of the study too; call that otherwise"
    elif said == ALL_SITES and not labelled:
        yield (
            "release_from",
            f"'release_from' is '{ALL_SITES}', but no site is 'supervised', and others have none",
        )
    elif said is not None and said != ALL_SITES and said not in labelled:
        yield "release_from", f"'release_from' is '{said}'; it must be a supervised site: {known}"
    changed = study.model_fields_set & {"release_weights", "release_partial", "release_keep"}
    for key in sorted(changed) if said != ALL_SITES else ():
        yield key, f"'{key}' is for the mean of all sites: set 'release_from' to '{ALL_SITES}', or leave it out"
    if study.release_keep and not study.evaluate:
        yield (
            "release_keep",
            "'release_keep' needs 'evaluate': true, without which nobody is asked; set it",
        )


def _of_length(study: Study) -> Found:
    rounds, warm = study.rounds, study.warm_start.rounds
    if (study.steps is None) == (study.epochs is None):
        yield "steps" if study.steps else "rounds", "give either 'steps' or 'epochs', the length of a round at a site"
    if warm > rounds:
        yield "warm_start", f"'warm_start.rounds' is {warm}; it must lie in 0…{rounds}"
    if warm and not study.of_role("supervised"):
        yield "warm_start", "'warm_start.rounds' must be 0: no site is 'supervised', and nobody else trains in them"
    if study.min_rounds > rounds:
        yield "min_rounds", f"'min_rounds' is {study.min_rounds}; it must lie in 0…{rounds}"
    if study.min_rounds and study.patience is None:
        yield "min_rounds", "'min_rounds' is for a run that may end early; give 'patience' too, or leave it out"
