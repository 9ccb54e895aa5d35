"""The bundle that a run was made with, as it is installed here."""

from fedmed.errors import ExportError, FedMedError
from fedmed.export.finished_run import FinishedRun
from fedmed.recovery.model_store import ModelStore

RECORDED = ("version", "digest")  # what the run says of its bundle, beside what built it


def open_store(run: FinishedRun) -> ModelStore:
    """The run's network from the installed bundle, which must be the very one.

    Raises:
        ExportError: the bundle is not installed, or is another version.
    """
    model = dict(run.config["model"])
    recorded = {key: model.pop(key) for key in RECORDED}
    try:
        store = ModelStore.from_args(model, run.records)
    except FedMedError as error:
        raise ExportError(f"the run's bundle cannot be opened: {error}") from error
    here = store.bundle
    if here.digest != recorded["digest"]:
        commit = f", commit {run.facts['commit']}" if run.facts.get("commit") else ""
        raise ExportError(
            f"bundle '{here.name}' at {here.root} (version {here.version}, hash {here.digest[:12]}) is not the one of "
            f"the run (version {recorded['version']}, hash {recorded['digest'][:12]}{commit}); install that one, for "
            "example with FEDMED_BUNDLES"
        )
    return store
