"""Choice of the image to label next, for a site without labels, as scored by the federated model that is being served.

``uncertainty``: the image whose prediction has the highest entropy. ``disagreement``: the one whose prediction changes
most under the augmentation that the model was trained with. Both look only at images without a final label. A request
scores at most ``max_samples`` (default 8) of those that have no score yet and begins none after ``max_seconds``
(default 60), then answers with the best so far; MONAI Label answers no other request meanwhile. Scores are kept with
the image in the datastore, so a folder of 500 scans is scored over many requests, once for each model. An image that
was handed out is not handed out again for ``reserved`` seconds (default 600) while there are others.

A request may also name ``model`` (default: the first one served) and, for ``disagreement``, ``views`` (default 2).
"""

import hashlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from monailabel.interfaces.datastore import Datastore
from monailabel.interfaces.tasks.strategy import Strategy

from fedmed.errors import FedMedError
from fedmed.labelling.ranking import RequestLimits, Scorer, choose
from fedmed.labelling.views import mean_disagreement, predictive_uncertainty, trained_augmentation

log = logging.getLogger("fedmed.labelling")

VIEWS = 2


def strategies(infers: Mapping[str, Any]) -> dict[str, Strategy]:
    """Return the strategies for the served models, or none where no model gives probabilities.

    Args:
        infers: name -> BundleTask.
    """
    tasks = {name: task for name, task in infers.items() if callable(getattr(task, "probabilities", None))}
    return {"uncertainty": Uncertainty(tasks), "disagreement": Disagreement(tasks)} if tasks else {}


class ModelStrategy(Strategy):
    """Hands out the image with the highest score by a served model.

    Args:
        name: of the strategy, under which scores are kept.
        tasks: name -> BundleTask, at least one.
        description: for the list that clients show.
    """

    def __init__(self, name: str, tasks: Mapping[str, Any], description: str) -> None:
        super().__init__(description)
        self.name, self.tasks = name, tasks
        self._scorers: dict[tuple[str, str, str], Scorer] = {}

    def score(self, task: Any, request: Mapping[str, Any]) -> tuple[str, Callable[[Path], float]]:
        """Facts on which the score depends besides model and image, and the function that scores an image file."""
        raise NotImplementedError

    def __call__(self, request: Mapping[str, Any], datastore: Datastore) -> dict[str, Any] | None:
        """Return ``{"id", "score", …}`` of the image to label next, or None if there is none.

        Raises:
            FedMedError: a model that is not served, or a limit that is not a number.
        """
        scorer, limits = self._scorer(request), RequestLimits.of(request)
        waiting = datastore.get_unlabeled_images(request.get("label_tag"), request.get("labels"))
        if not waiting:
            log.info("%s: every image has a label", self.name)
            return None
        choice = choose(scorer, datastore, waiting, limits)
        if choice is None:
            return None
        shown = {"strategy_name": self.name, "model": scorer.model, "score": choice.score, "rank": choice.rank}
        return {"id": choice.image, **shown, "scored": choice.scored, "waiting": choice.waiting}

    def _scorer(self, request: Mapping[str, Any]) -> Scorer:
        name = request.get("model") or next(iter(self.tasks))
        if name not in self.tasks:
            raise FedMedError(f"no model '{name}' is served; use one of {', '.join(self.tasks)}")
        task = self.tasks[name]
        settings, score = self.score(task, request)
        version = getattr(task, "version", None)
        model = f"{name} {version}" if version else name
        key = (model, str(task.get_path()), settings)
        if key not in self._scorers:  # a scorer remembers which images it could not read
            self._scorers[key] = Scorer(self.name, model, Path(task.get_path()), settings, score)
        return self._scorers[key]


class Uncertainty(ModelStrategy):
    """Highest predictive uncertainty first; see :func:`fedmed.labelling.views.predictive_uncertainty`."""

    def __init__(self, tasks: Mapping[str, Any]) -> None:
        super().__init__("uncertainty", tasks, "Image the model is least sure about (entropy of its prediction)")

    def score(self, task: Any, request: Mapping[str, Any]) -> tuple[str, Callable[[Path], float]]:
        return "entropy", lambda image: predictive_uncertainty(task.probabilities(str(image)), task.together)


class Disagreement(ModelStrategy):
    """Largest disagreement first; see :func:`fedmed.labelling.views.mean_disagreement`."""

    def __init__(self, tasks: Mapping[str, Any]) -> None:
        text = "Image whose prediction changes most under the augmentation that it was trained with"
        super().__init__("disagreement", tasks, text)

    def score(self, task: Any, request: Mapping[str, Any]) -> tuple[str, Callable[[Path], float]]:
        count = VIEWS if request.get("views") is None else request["views"]
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 16:
            raise FedMedError(f"'views' is {count!r}; give an integer from 1 to 16")
        settings = trained_augmentation(Path(getattr(task, "bundle_path", ".")))
        text = hashlib.sha256(repr([count, sorted(settings.items())]).encode()).hexdigest()[:12]

        def score(image: Path) -> float:
            return mean_disagreement(partial(task.probabilities, str(image)), settings, range(count), task.together)

        return f"views {text}", score
