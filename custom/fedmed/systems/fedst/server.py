"""Training of the averaged network with synthetic images at the server (Fang et al. 2025)."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from monai.engines.utils import IterationEvents
from torch import Tensor, nn

from fedmed.errors import DataError, JobError, StateError
from fedmed.in_range import in_range
from fedmed.systems.fedst.separation import POOLED, Separation, plain_feature
from fedmed.training.server_engine import HINT, Ask, Batch, Phase, Prefetched, load_optimizer, on_cpu
from fedmed.training.trainer import SupervisedEngine

PRE, AVERAGED = "pre-trained network", "averaged network"  # phases of a round
Penalty = Callable[[Tensor, Tensor], Tensor]  # of images (B, …) and features (B, c, …): a scalar


class RepresentationTraining:
    """Two phases over the same batches; see :class:`fedmed.training.server_engine.ServerEngine`.

    First a network v_pre, pre-trained with synthetic images, and a descriptor D_sy of their domain learn what of its
    features the averaged network has too (Eq. 11); then the averaged network v_g learns from the rest (Eq. 12). What
    v_g makes of the images before that enters a moving average over the rounds (Eq. 10).

    Args:
        network: v_g. It has ``forward_plain``: images (B, 3, H, W) -> (logits, features (B, c, h, w)), and may have
            ``plain_feature``, which gives the features alone.
        loss_function: of logits and labels, Eq. 9.
        loader: gives the batches of a round.
        prepare_batch: (batch, device) -> images and labels, of which 0 is the background.
        device: where to train.
        steps: of each phase.
        rate: of Adam in both phases.
        mu: weight of a round's own feature in the moving average, from 0 to 1.
        lambda2, lambda3: weights of the penalties of Eq. 11 and Eq. 12, 0 or more.
        separates: whether there is anything but the supervised loss. Without, v_g alone is trained on, the control of
            the paper's Fig. 5; its model is that of ``lambda3: 0``.
        pooled: whether descriptor and average are the same at all places (c, 1, 1), for images of several sizes.
        untouched: regular expressions, found anywhere in a parameter's name, of what no optimizer gets.
        seed: of the descriptor's first values.

    Raises:
        JobError: a number outside its range.
    """

    def __init__(
        self,
        network: nn.Module,
        loss_function: Callable[[Tensor, Tensor], Tensor],
        loader: Iterable[Batch],
        prepare_batch: Callable[..., tuple[Tensor, Tensor | None]],
        device: torch.device | str = "cpu",
        steps: int = 100,
        rate: float = 1e-4,
        mu: float = 0.5,
        lambda2: float = 0.3,
        lambda3: float = 0.3,
        separates: bool = True,
        pooled: bool = False,
        untouched: Sequence[str] = (r"^temporal\.", r"^selection\."),
        seed: int = 0,
    ) -> None:
        if in_range("mu", mu, least=0) > 1:
            raise JobError(f"'mu' is {mu!r}; give a number from 0 to 1")
        for name, value, least in (("lambda2", lambda2, 0), ("lambda3", lambda3, 0), ("steps", steps, 1)):
            in_range(name, value, least=least)
        in_range("rate", rate, above=0)
        self.device, self.untouched = torch.device(device), [re.compile(pattern) for pattern in untouched]
        self.network, self.loss_function = network.to(self.device), loss_function
        self.loader, self.prepare_batch, self.phase_steps = loader, prepare_batch, steps
        self.lambda2, self.lambda3 = lambda2, lambda3
        self.optimizer = torch.optim.Adam(self._parameters(network), lr=rate)
        parts = (self.network, self._parameters, rate, mu, pooled, seed)
        self.separation = Separation(*parts) if separates else None

    @property
    def steps(self) -> int:
        return self.phase_steps * (2 if self.separation else 1)

    def _parameters(self, network: nn.Module) -> list[nn.Parameter]:
        """Those that are trained; the others get no gradient either."""
        for name, parameter in network.named_parameters():
            if any(pattern.search(name) for pattern in self.untouched):
                parameter.requires_grad_(False)
        return [parameter for parameter in network.parameters() if parameter.requires_grad]

    def load_state_dict(self, state: Mapping[str, Any], start: Mapping[str, Tensor]) -> None:
        """Go on from an earlier round.

        Raises:
            StateError: the state is of another network, or of other settings.
        """
        if state and ("separation" in state) != (self.separation is not None):
            raise StateError(f"the server's kept state is of another training: 'separates' differs; {HINT}")
        if state:
            load_optimizer(self.optimizer, state["optimizer"])
        if self.separation:
            self.separation.load_state_dict(state.get("separation", {}), start)

    def state_dict(self) -> dict[str, Any]:
        """Both optimizers, v_pre, D_sy and F̂_g; without separation one optimizer."""
        optimizer = {"optimizer": on_cpu(self.optimizer.state_dict())}
        return optimizer | ({"separation": self.separation.state_dict()} if self.separation else {})

    def check(self) -> None:
        """Look at all batches of a round, and at the features of one.

        Raises:
            DataError: there is none, none has labels or shows anything, or the features' shape is not the descriptor's.
        """
        shown, feature = False, None
        with self._batches() as batches:
            for batch in batches:
                shown = shown or bool((batch["label"] > 0).any())
                if self.separation and feature is None:
                    with torch.no_grad():
                        feature = self.separation.map_of(plain_feature(self.network.eval(), batch["image"]))[0]
                    self.separation.check_shape(feature, None)
            if not batches.ready:
                raise DataError("the server has no images to train with; look at the server's datalist")
            sizes = {tuple(batch["image"].shape[1:]) for batch in batches.ready}
        if not shown:
            raise DataError("no mask of the server's images shows any class; look at the masks, and at their values")
        if self.separation and not self.separation.pooled and len(sizes) > 1:
            raise DataError(f"the server's images have several sizes, {sorted(sizes)}; use one, or {POOLED}")

    def run(self, phase: Phase, ask: Ask) -> dict[str, float]:
        """Train and return ``server_loss``, the mean of Eq. 9 over the steps, and with separation ``server_loss_pre``,
        ``descriptor_gap`` and ``feature_gap``, the penalties without their weights, and ``domain_norm``, ‖D_sy‖.

        Raises:
            FedMedError: a loss or a value that is not a number.
        """
        with self._batches() as batches:
            kept = self.separation
            if kept is None:
                return {"server_loss": self._phase(phase, AVERAGED, batches)["train_supervised"]}
            kept.take_average(self.network, batches, ask)
            pre = self._phase(phase, PRE, batches)
            averaged = self._phase(phase, AVERAGED, batches)
        kept.check_finite()
        gaps = {"descriptor_gap": pre["train_penalty"], "feature_gap": averaged["train_penalty"]}
        losses = {"server_loss_pre": pre["train_supervised"], "server_loss": averaged["train_supervised"]}
        return {**losses, **gaps, "domain_norm": kept.domain_norm}

    def _phase(self, phase: Phase, name: str, batches: Prefetched) -> dict[str, float]:
        penalty: Penalty | None = None
        network, weight = self.network, 0.0
        optimizer: torch.optim.Optimizer = self.optimizer
        if self.separation and name == PRE:
            assert self.separation.optimizer is not None  # made with the average
            network, optimizer = self.separation.pre, self.separation.optimizer
            penalty, weight = self.separation.descriptor_penalty, self.lambda2
        elif self.separation:
            penalty, weight = self.separation.instrument_penalty, self.lambda3
        engine = PenalisedEngine(
            self.device,
            1,
            batches,
            network,
            optimizer,
            self.loss_function,
            epoch_length=self.phase_steps,
            penalty=penalty,
            penalty_weight=weight,
        )
        return phase(engine, self.phase_steps, name)

    def _batches(self) -> Prefetched:
        return Prefetched(self.loader, self._prepared)

    def _prepared(self, batch: Batch) -> Batch:
        images, labels = self.prepare_batch(batch, self.device)
        if labels is None:
            raise DataError("the server's images have no masks; its training needs some for each image")
        return {"image": images, "label": labels}


class PenalisedEngine(SupervisedEngine):
    """Supervised loss and a weighted penalty on features: the form of Fang et al. 2025, Eq. 11 and 12.

    Args:
        args, kwargs: as in :class:`SupervisedEngine`. The network has ``forward_plain``: images -> (logits, features),
            which leaves out what needs the frames before or a site's own layers.
        penalty: of images and features; None = the supervised loss alone.
        penalty_weight: of the penalty; with 0 it is computed and changes nothing.

    ``engine.state.output`` has detached scalars: ``loss``, what was minimised, ``supervised`` and, where there is one,
    ``penalty`` without its weight.
    """

    def __init__(self, *args: Any, penalty: Penalty | None = None, penalty_weight: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.penalty, self.penalty_weight = penalty, penalty_weight

    def _iteration(self, engine: Any, batchdata: dict[str, Any]) -> dict[str, Tensor]:
        images, labels = self.prepare_batch(batchdata, self.state.device, self.non_blocking)
        network: Any = self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        logits, features = network.forward_plain(images)
        self.fire_event(IterationEvents.FORWARD_COMPLETED)
        loss = supervised = self.loss_function(logits, labels)
        output = {"supervised": supervised.detach()}
        if self.penalty is not None:
            penalty = self.penalty(images, features)
            output["penalty"] = penalty.detach()
            loss = supervised + self.penalty_weight * penalty if self.penalty_weight else supervised
        self.fire_event(IterationEvents.LOSS_COMPLETED)
        self.backward(loss)
        self.fire_event(IterationEvents.BACKWARD_COMPLETED)
        self.step(self.optimizer)
        self.state.output = {"loss": loss.detach(), **output}
        self.fire_event(IterationEvents.MODEL_COMPLETED)
        return self.state.output
