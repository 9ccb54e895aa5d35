"""Corrections of a site's gradients and images, called at every step of any engine."""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce
from typing import Any

import torch
from ignite.engine import Events
from torch import Tensor, nn

from fedmed.class_paths import class_path
from fedmed.errors import BundleError, JobError, StateError
from fedmed.moved_classes import FINISH, hint
from fedmed.training.corrections.correction import Correction, RoundStart, StepBatch

log = logging.getLogger("fedmed.site")
KEY = "corrections"  # of an engine's state, with theirs


class Corrections:
    """Corrections of a training, in the order in which the configuration lists them.

    They act by hooks of the optimizer, so they see what it sees: each engine's own way to it, gradient clipping and a
    GradScaler included, stays as it is. Images are changed where a batch is prepared, if one of them does that.
    Without corrections nothing is added to the engine.

    Raises:
        BundleError: one of the items is not a correction.
    """

    def __init__(self, items: Sequence[Correction] = ()) -> None:
        for item in items:
            if not isinstance(item, Correction):
                raise BundleError(
                    f"'train#corrections' lists a {type(item).__name__}; list objects of classes that extend "
                    "fedmed.training.corrections.correction.Correction"
                )
        self.items = list(items)
        self.trains = True  # whether the site does; where not, there is no state that scoring goes on from
        self._values: dict[str, Any] = {}

    def receive(self, extras: Mapping[str, Any]) -> dict[str, Any]:
        """Take what came with the task for a correction; return what is left, for the engine."""
        taken = {name for item in self.items for name in item.takes}
        self._values = {name: value for name, value in extras.items() if name in taken}
        return {name: value for name, value in extras.items() if name not in taken}

    def attach(self, engine: Any, received: Collection[str], shared: Collection[str], **facts: Any) -> None:
        """Add to a trainer that has ``network`` and ``optimizer``.

        Args:
            received, shared: names of the tensors that the site received, and of those that it sends back.
            facts: of time, and ``before_batch``; see :class:`RoundStart`.

        Raises:
            JobError: the trainer does not train by the bundle's optimizer.
        """
        if not self.items:
            return
        if not getattr(engine, "takes_corrections", True):
            raise JobError(
                f"{type(engine).__name__} does not train by the bundle's optimizer, so 'train#corrections' would "
                "change nothing; leave that overlay out"
            )
        hooks: list[Any] = []
        prepare: Any = getattr(engine, "prepare_batch", None)
        terms = [LossTerm(item, engine) for item in self.items if _overrides(item, "loss")]

        def begin() -> None:
            tensors = engine.network.state_dict()
            copies = {name: tensors[name].detach().clone() for name in received}
            parameters = dict(engine.network.named_parameters())
            for item in self.items:
                item.begin(RoundStart(copies, frozenset(shared), self._values_of(item), **facts, parameters=parameters))
            if changing := [item.change_images for item in self.items if _overrides(item, "change_images")]:
                engine.prepare_batch = _changed(prepare, changing)
            for term in terms:
                term.begin()
            hooks.append(engine.optimizer.register_step_pre_hook(lambda *_: each("before_step")))
            hooks.append(engine.optimizer.register_step_post_hook(lambda *_: each("after_step")))

        def each(name: str) -> None:
            # A GradScaler calls a fused optimizer also when it is about to skip its step.
            if not bool(getattr(engine.optimizer, "found_inf", False)):
                _unscale(engine.optimizer)
                self._each(name, engine.network)

        def iterate() -> None:
            for item in self.items:
                item.before_iteration(engine.state.iteration - 1)

        def end() -> None:
            while hooks:
                hooks.pop().remove()
            engine.prepare_batch = prepare
            for term in reversed(terms):
                term.end()
            self._each("end", engine.network)

        engine.add_event_handler(Events.STARTED, begin)
        engine.add_event_handler(Events.ITERATION_STARTED, iterate)
        engine.add_event_handler(Events.COMPLETED, end)

    def begin_without_training(self) -> None:
        """Let those for which something came decide by the images of a site that has not trained yet, or never does."""
        for item in self.items:
            if values := self._values_of(item):
                item.begin(RoundStart({}, values=values))

    @property
    def change_scoring(self) -> bool:
        """True where one of them changes images that a model is scored with, or the model."""
        return any(_overrides(item, name) for item in self.items for name in ("change_scored_images", "change_network"))

    def attach_to_scoring(self, evaluator: Any) -> None:
        """Let an evaluator see images, and use a network, as they do."""
        if not self.trains:
            scored = ScoredImages(evaluator)
            for item in self.items:
                item.begin_scoring(scored, self._values_of(item))
        seeing = [item for item in self.items if _overrides(item, "change_scored_images")]
        if [item for item in seeing if _overrides(item, "decision") and not item.decision]:
            log.warning("this model is scored with images as they are: a site adapts them from its first training on")
        changing = [item.change_scored_images for item in seeing]
        if changing:
            evaluator.prepare_batch = _changed(evaluator.prepare_batch, changing)
        for item in [item for item in self.items if _overrides(item, "change_network")]:
            item.change_network(
                evaluator.network,
                lambda images: evaluator.inferer(images, evaluator.network),
                lambda images: reduce(lambda seen, change: change(seen), changing, images),
            )

    @property
    def decisions(self) -> str:
        """Their decisions at this site, in words."""
        return "; ".join(item.decision for item in self.items if item.decision)

    def _values_of(self, item: Correction) -> dict[str, Any]:
        return {name: value for name, value in self._values.items() if name in item.takes}

    @torch.no_grad()
    def _each(self, name: str, network: nn.Module) -> None:
        parameters = dict(network.named_parameters())
        for item in self.items:
            getattr(item, name)(parameters)

    def extras(self) -> dict[str, Any]:
        """Values that all of them send, by name."""
        return {name: value for item in self.items for name, value in item.extras().items()}

    def kept_with(self, engine_state: Mapping[str, Any]) -> dict[str, Any]:
        """The engine's state with theirs; the engine's alone without corrections."""
        states = [{"path": class_path(item), "state": item.state_dict()} for item in self.items]
        return {**engine_state, KEY: states} if states else dict(engine_state)

    def load_state_dict(self, engine_state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`kept_with` returned, if it holds corrections; StateError for a state of others."""
        states = engine_state.get(KEY)
        if states is None:
            return
        theirs, ours = [entry["path"] for entry in states], [class_path(item) for item in self.items]
        if theirs != ours:
            raise StateError(
                hint(str(theirs), FINISH)
                or f"the site's kept state is of the corrections {theirs}, this job's are {ours}; "
                "use the same job, or start a new run"
            )
        for item, entry in zip(self.items, states, strict=True):
            item.load_state_dict(entry["state"])


class LossTerm:
    """Adds a correction's loss to that of an engine, in the graph of the engine's own forward pass.

    What the network and its last layer got is noted in each pass in train mode. An engine's loss of labels is where the
    term is added to a labelled batch; else to what it differentiates next.

    Args:
        item: with a :meth:`fedmed.training.corrections.correction.Correction.loss` of its own.
        engine: a trainer with ``network`` and, for batches without labels, ``backward``.

    Raises:
        JobError: the network has no such layer.
    """

    OF_LABELS = ("loss_function", "supervised_loss")

    def __init__(self, item: Correction, engine: Any) -> None:
        self.item, self.engine = item, engine
        self._layer: nn.Module = _layer_of(engine.network, item.features_layer)
        self._images: Tensor | None = None
        self._features: Tensor | None = None
        self._hooks: list[Any] = []
        self._kept: dict[str, Any] = {}
        self._added = 0

    def begin(self) -> None:
        """Add the term from now on."""
        self._added = 0
        self._hooks = [
            self.engine.network.register_forward_pre_hook(self._note("_images")),
            self._layer.register_forward_pre_hook(self._note("_features")),
        ]
        for name in self.OF_LABELS:
            if (loss := getattr(self.engine, name, None)) is not None:
                self._put(name, lambda pred, labels, loss=loss: self._with(loss(pred, labels), labels))
        if (backward := getattr(self.engine, "backward", None)) is not None:
            self._put("backward", lambda loss: backward(self._with(loss, None)))

    def end(self) -> None:
        """Leave the engine as it was; JobError if the whole network never saw images, so nothing had the term."""
        for hook in self._hooks:
            hook.remove()
        for name, before in self._kept.items():
            setattr(self.engine, name, before)
        self._kept = {}
        if not self._added:
            raise JobError(
                f"{type(self.engine).__name__} trains parts of the network by themselves, so there are no features "
                f"for the loss of {type(self.item).__name__}; use it with another method"
            )

    def _put(self, name: str, changed: Callable[..., Any]) -> None:
        self._kept[name] = getattr(self.engine, name)
        setattr(self.engine, name, changed)

    def _note(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def note(_: nn.Module, given: tuple[Tensor, ...]) -> None:
            if torch.is_grad_enabled() and self.engine.network.training and given:
                setattr(self, name, given[0])

        return note

    def _with(self, loss: Tensor, labels: Tensor | None) -> Tensor:
        images, features = self._images, self._features
        if images is None or features is None:  # a labelled batch's loss has it already
            return loss
        self._images = self._features = None
        self._added += 1
        term = self.item.loss(images, features, StepBatch(labels))
        return loss if term is None else loss + term


def _layer_of(network: nn.Module, name: str) -> nn.Module:
    if not name:
        *_, last = (name for name, _ in network.named_parameters())
        name = last.rpartition(".")[0]
    try:
        return network.get_submodule(name)
    except AttributeError as error:
        known = ", ".join(name for name, _ in network.named_children())
        raise JobError(f"{type(network).__name__} has no layer '{name}' to take features of; it has {known}") from error


class ScoredImages:
    """Images that an evaluator scores, one by one, as the network sees them before any correction.

    Args:
        evaluator: with ``data_loader`` and ``prepare_batch``, which a correction may replace later.
    """

    def __init__(self, evaluator: Any) -> None:
        self._loader, self._prepare = evaluator.data_loader, evaluator.prepare_batch

    def __len__(self) -> int:
        return len(self._loader.dataset)

    def __getitem__(self, place: int) -> Mapping[str, Tensor]:
        dataset = self._loader.dataset  # which may read whole batches
        items = dataset.__getitems__([place]) if hasattr(dataset, "__getitems__") else [dataset[place]]
        images, *_ = self._prepare(self._loader.collate_fn(items))
        return {"image": images[0]}


def _overrides(item: Correction, name: str) -> bool:
    return getattr(type(item), name) is not getattr(Correction, name)


def _changed(prepare: Callable[..., Any], changing: Sequence[Callable[[Tensor], Tensor]]) -> Callable[..., Any]:
    """Return an engine's ``prepare_batch`` with images that go through all changes."""

    def prepared(*args: Any, **kwargs: Any) -> Any:
        images, *labels = prepare(*args, **kwargs)
        for change in changing:
            images = change(images)
        return (images, *labels)

    return prepared


def _unscale(optimizer: Any) -> None:
    """Divide the gradients by the scale where a fused optimizer would do that itself, while it steps."""
    scale = getattr(optimizer, "grad_scale", None)
    if scale is None:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.div_(scale)
    optimizer.grad_scale = None
