"""Which image to label next, for a site without labels: asked of the federated model that is being served.

``uncertainty``: the image whose prediction has the highest entropy. ``disagreement``: the one whose prediction changes
most under the augmentation that the model was trained to be consistent under. Both look only at images without a final
label. A request scores at most ``max_samples`` (default 8) of those that have no score yet and begins none after
``max_seconds`` (default 60), then answers with the best so far; MONAI Label answers nobody else meanwhile. Scores are
kept with the image in the datastore, so a folder of 500 scans is scored over many requests, once for each model. An
image that was handed out is not handed out again for ``reserved`` seconds (default 600) while there are others.

A request may also name ``model`` (default: the first one served) and, for ``disagreement``, ``views`` (default 2).
"""

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml
from monailabel.interfaces.datastore import Datastore
from monailabel.interfaces.tasks.strategy import Strategy

from fedmed.data.augment.base import Augment, weak_view
from fedmed.data.augment.build import build_augment
from fedmed.errors import FedMedError
from fedmed.labelling.ranking import Images, Limits, Scorer, choose
from fedmed.labelling.scores import predictive_uncertainty, view_disagreement

log = logging.getLogger("fedmed.labelling")

VIEWS = 2
DEFAULTS = {"augmentation": "scale_shift", "shift_level": 0.1, "cutout_size": [20, 20, 3]}


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
        """What the score depends on beside model and image, and the score of one image file."""
        raise NotImplementedError

    def __call__(self, request: Mapping[str, Any], datastore: Datastore) -> dict[str, Any] | None:
        """Return ``{"id", "score", …}`` of the image to label next, or None if there is none.

        Raises:
            FedMedError: a model that is not served, or a limit that is no number.
        """
        scorer, limits = self._scorer(request), Limits.of(request)
        waiting = datastore.get_unlabeled_images(request.get("label_tag"), request.get("labels"))
        images = Images(
            ids=waiting,
            path=lambda image: Path(datastore.get_image_uri(image)),
            info=datastore.get_image_info,
            keep=datastore.update_image_info,
        )
        if not waiting:
            log.info("%s: every image has a label", self.name)
            return None
        choice = choose(scorer, images, limits)
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
    """Highest predictive uncertainty first; see :func:`fedmed.labelling.scores.predictive_uncertainty`."""

    def __init__(self, tasks: Mapping[str, Any]) -> None:
        super().__init__("uncertainty", tasks, "Image the model is least sure about (entropy of its prediction)")

    def score(self, task: Any, request: Mapping[str, Any]) -> tuple[str, Callable[[Path], float]]:
        return "entropy", lambda image: predictive_uncertainty(task.probabilities(str(image)))


class Disagreement(ModelStrategy):
    """Largest disagreement first; see :func:`fedmed.labelling.scores.view_disagreement`.

    The views are drawn from the same seeds for every image: with draws of their own, images would be ranked by how
    much they happened to be changed.
    """

    def __init__(self, tasks: Mapping[str, Any]) -> None:
        text = "Image whose prediction changes most under the augmentation of consistency training"
        super().__init__("disagreement", tasks, text)

    def score(self, task: Any, request: Mapping[str, Any]) -> tuple[str, Callable[[Path], float]]:
        count = VIEWS if request.get("views") is None else request["views"]
        if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 16:
            raise FedMedError(f"'views' is {count!r}; give a whole number from 1 to 16")
        settings = consistency_settings(Path(getattr(task, "bundle_path", ".")))
        text = hashlib.sha256(repr([count, sorted(settings.items())]).encode()).hexdigest()[:12]
        return f"views {text}", lambda image: disagreement(task, image, settings, range(count))


def disagreement(task: Any, image: Path, settings: Mapping[str, Any], seeds: Sequence[int]) -> float:
    """Mean disagreement of an image's prediction with that of one augmented view for each seed."""
    distances = []
    p = None
    for seed in seeds:
        augment = build_augment(settings["augmentation"], seed, settings["shift_level"], settings["cutout_size"])
        if p is None or not _plain_weak(augment):  # FixMatch changes both views
            p = task.probabilities(str(image), None if _plain_weak(augment) else lambda x, a=augment: weak_view(a, x))
        distances.append(view_disagreement(p, task.probabilities(str(image), augment)))
    return fmean(distances)


def consistency_settings(bundle: Path) -> dict[str, Any]:
    """The augmentation that the sites without masks were trained with.

    It is that of ``configs/consistency.yaml``, changed by what the federation's job overrode, as an exported bundle's
    metadata say; the paper's scale-shift where neither names one.

    Raises:
        FedMedError: a file cannot be read, or names an augmentation that FedMed does not have.
    """
    configs = bundle / "configs"
    settings = dict(DEFAULTS)
    try:
        for values in (_read(configs / "consistency.yaml"), _overrides(_read(configs / "metadata.json"))):
            settings |= {key: value for key, value in values.items() if key in DEFAULTS}
        build_augment(settings["augmentation"], 0, settings["shift_level"], settings["cutout_size"])
    except (OSError, ValueError, TypeError, AttributeError, yaml.YAMLError, FedMedError) as error:
        raise FedMedError(f"{configs}: no usable augmentation ({error}); correct consistency.yaml") from error
    return settings


def _read(path: Path) -> dict[str, Any]:
    """Content of a YAML file, of which JSON is a kind; empty where there is none."""
    return (yaml.safe_load(path.read_text(encoding="utf-8")) if path.is_file() else None) or {}


def _overrides(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    methods = metadata.get("federation", {}).get("methods", {})
    return methods.get("unsupervised", {}).get("overrides", {})


def _plain_weak(augment: Augment) -> bool:
    """Whether the view of the pseudo-label is the image as it is, which then needs one prediction for all seeds."""
    parts = getattr(augment, "augments", (augment,))
    return all(getattr(type(part), "weak", Augment.weak) is Augment.weak for part in parts)
