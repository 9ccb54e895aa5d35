"""Names of what a model marks, where the study of its run gave none."""

from collections.abc import Sequence
from dataclasses import replace

from fedmed.bundles.find import SHIPPED_BUNDLES
from fedmed.bundles.metadata_classes import channel_names
from fedmed.data.structure import Structure
from fedmed.errors import ExportError, JobError
from fedmed.export.exporter import Exporter
from fedmed.export.finished_run import FinishedRun
from fedmed.export.weights import open_store
from fedmed.jobs.study import Study
from fedmed.kinds.find_kind import kind_of
from fedmed.kinds.kind import Kind
from fedmed.reports.words import join
from fedmed.settings.site import has_demo_data


def unchosen_names(study: Study, exporter: Exporter, classes: Sequence[Structure]) -> str:
    """Say that a model of a site's own masks has the names of a shipped bundle, since the study gave none.

    Labels that are words have to be the names, so those fit; masks hold numbers, which fit any name. Of synthetic
    sites the names are right, and an overlay of other names was chosen. Empty where nothing is to be said.
    """
    bundle, names = exporter.bundle, [one.name for one in classes]
    unchosen = bundle.root.parent == SHIPPED_BUNDLES and not study.classes and names == channel_names(bundle.metadata)
    if not unchosen or not _marks(exporter.kind) or all(map(has_demo_data, study.sites)):
        return ""
    listed = ",".join(["liver", "spleen", "kidney"][: len(classes)])
    return (
        f"the study has no 'classes', so what the model marks is called {join([one.title for one in classes])}, as the "
        f"shipped bundle {bundle.name} has it; if your masks show something else, name it: --classes {listed} for this "
        f"run, 'classes: [{listed.replace(',', ', ')}]' in the study before the next"
    )


def with_names(run: FinishedRun, names: Sequence[str]) -> FinishedRun:
    """Name what a finished run's model marks, as if its study had said ``classes``; no names: the run as it is.

    Raises:
        ExportError: the study says them, labels are words, or these are not as many as the model has, or no names.
    """
    if not names:
        return run
    if run.study.classes:
        said = join([one.name for one in run.study.structures])
        raise ExportError(f"--classes: the run's study names its classes ({said}); leave it out")
    store = open_store(run)
    if not _marks(kind_of(store.bundle)):
        raise ExportError("--classes: the sites' labels are these names, so the model has no others; leave it out")
    if len(names) != len(store.classes):
        has = join([one.name for one in store.classes])
        raise ExportError(f"--classes gives {len(names)} names, and the model marks {len(store.classes)}: {has}")
    study = {**run.config["study"], "classes": list(names)}
    named = replace(run, facts={**run.facts, "config": {**run.config, "study": study}})
    try:
        _ = named.job
    except JobError as error:
        raise ExportError(f"--classes: {error}") from error
    return named


def _marks(kind: Kind) -> bool:
    return kind.proposal is not None and not kind.proposal.scores
