"""The global model on FLARE's side."""

from pathlib import Path

from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.model import ModelLearnable, make_model_learnable
from nvflare.app_common.abstract.model_persistor import ModelPersistor

from fedmed.flare.convert import to_numpy
from fedmed.jobs.job import Job
from fedmed.jobs.job_folder import read_app
from fedmed.recovery.model_store import ModelStore
from fedmed.settings.server import load_server


class BundleModelPersistor(ModelPersistor):
    """Builds the starting model from the study; the run's store saves the models that follow."""

    def __init__(self) -> None:
        super().__init__()
        self._job: Job | None = None
        self._store: ModelStore | None = None

    def job(self, fl_ctx: FLContext) -> Job:
        """The study in the server's app, read with the server's own list of classes.

        Raises:
            FedMedError: it is missing, or has mistakes.
        """
        if self._job is None:
            root = Path(fl_ctx.get_engine().get_workspace().get_root_dir())
            self._job = read_app(_app(fl_ctx), load_server(root).allowed_classes)
        return self._job

    def store(self, fl_ctx: FLContext) -> ModelStore:
        """The run's store; its folder is the server app's folder, where FLARE's own persistors write."""
        if self._store is None:
            self._store = ModelStore(self.job(fl_ctx), _app(fl_ctx))
        return self._store

    def load_model(self, fl_ctx: FLContext) -> ModelLearnable:
        """Return the starting model."""
        return make_model_learnable(to_numpy(self.store(fl_ctx).initial), {})

    def save_model(self, model: ModelLearnable, fl_ctx: FLContext) -> None:
        """Nothing to do: the server has kept the round's model before FLARE hears of it."""


def _app(fl_ctx: FLContext) -> Path:
    return Path(fl_ctx.get_engine().get_workspace().get_app_dir(fl_ctx.get_job_id()))
