"""FedMed's app for MONAI Label; its class is found by MONAI Label. Started by scripts/label.sh."""

import logging
import os
from typing import Any

import monailabel
from fedmed_label.datastore import LinkedDatastore
from fedmed_label.infer import BundleTask
from fedmed_label.strategies import strategies
from monailabel.config import settings
from monailabel.interfaces.app import MONAILabelApp
from monailabel.interfaces.datastore import Datastore
from monailabel.interfaces.exception import MONAILabelError, MONAILabelException
from monailabel.interfaces.tasks.strategy import Strategy
from monailabel.tasks.activelearning.first import First
from monailabel.tasks.activelearning.random import Random

from fedmed.errors import FedMedError, first_line

log = logging.getLogger("fedmed.label")


class FedMedApp(MONAILabelApp):
    """Serves the bundles in the app's ``model`` folder that the setting ``models`` names. It trains nothing."""

    def __init__(self, app_dir: str, studies: str, conf: dict[str, str]) -> None:
        self.bundles = {name: os.path.join(app_dir, "model", name) for name in conf["models"].split(",")}
        words = "Models of a federation: segmentation and classification, in 3D and 2D"
        super().__init__(app_dir, studies, conf, name="FedMed", description=words, version=monailabel.__version__)

    def init_infers(self) -> dict[str, BundleTask]:
        return {name: BundleTask(path, self.conf) for name, path in self.bundles.items()}

    def init_strategies(self) -> dict[str, Strategy]:
        return {"random": Random(), "first": First(), **strategies(self._infers)}

    def init_datastore(self) -> Datastore:
        if self.studies.startswith(("http://", "https://")):
            return super().init_datastore()
        store = LinkedDatastore(
            self.studies,
            extensions=[*settings.MONAI_LABEL_DATASTORE_FILE_EXT, "*.dcm"],
            auto_reload=settings.MONAI_LABEL_DATASTORE_AUTO_RELOAD,
            read_only=settings.MONAI_LABEL_DATASTORE_READ_ONLY,
        )
        store.models = lambda: {name: str(task.version) for name, task in self._infers.items()}
        return store

    def infer(self, request: dict[str, Any], datastore: Datastore | None = None) -> dict[str, Any]:
        """Run a model on an image of the studies or on one that the client sent.

        Raises:
            DataError: no such image, or the model cannot use it; names the image.
            MONAILabelException: no such model.
            FedMedError: the model fails.
        """
        image = request.get("image")
        if request.get("model") not in self._infers:
            known = ", ".join(self._infers)
            raise MONAILabelException(
                MONAILabelError.INVALID_INPUT, f"there is no model '{request.get('model')}'; this server has: {known}"
            )
        try:
            return super().infer(request, datastore)
        except FedMedError as error:
            raise type(error)(f"image '{_shown(image)}': {error}") from error
        except Exception as error:  # noqa: BLE001 - transforms and networks are the bundle's own
            log.exception("image '%s'", _shown(image))
            raise FedMedError(
                f"image '{_shown(image)}': the model '{request['model']}' fails ({first_line(error)})"
            ) from error


def _shown(image: Any) -> str:
    return os.path.basename(image) if isinstance(image, str) else "sent by the client"
