"""The global model on FLARE's side."""

from pathlib import Path
from typing import Any

from nvflare.apis.fl_context import FLContext
from nvflare.app_common.abstract.model import ModelLearnable, ModelLearnableKey, make_model_learnable
from nvflare.app_common.abstract.model_persistor import ModelPersistor

from fedmed.flare.convert import to_numpy, to_tensors
from fedmed.recovery.model_store import ModelStore


class BundleModelPersistor(ModelPersistor):
    """Builds the starting model from bundle, overlays and seed, and saves global models atomically.

    Args:
        args: plain arguments of :class:`fedmed.recovery.model_store.ModelStore`.
    """

    def __init__(self, **args: Any) -> None:
        super().__init__()
        self.args = args
        self._store: ModelStore | None = None

    def store(self, fl_ctx: FLContext) -> ModelStore:
        """The run's store; its folder is the server app's folder, where FLARE's own persistors write."""
        if self._store is None:
            folder = fl_ctx.get_engine().get_workspace().get_app_dir(fl_ctx.get_job_id())
            self._store = ModelStore.from_args(self.args, Path(folder))
        return self._store

    def load_model(self, fl_ctx: FLContext) -> ModelLearnable:
        """Return the starting model."""
        return make_model_learnable(to_numpy(self.store(fl_ctx).initial), {})

    def save_model(self, model: ModelLearnable, fl_ctx: FLContext) -> None:
        """Save the current global model."""
        tensors = to_tensors(model[ModelLearnableKey.WEIGHTS])
        self.store(fl_ctx).save(tensors, model[ModelLearnableKey.META], False)
