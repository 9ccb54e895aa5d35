"""Contrastive pre-training on images without labels: MoCo, and what FedMoCo adds at a site."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from ignite.engine import Events
from monai.engines.utils import IterationEvents
from torch import Tensor, nn

from fedmed.errors import FedMedError
from fedmed.seeds import derive_seed
from fedmed.systems.fedmoco.keys import MomentumKeys
from fedmed.systems.fedmoco.loss import contrast_scalars, info_nce
from fedmed.systems.fedmoco.metadata import SyntheticNegatives, similarity_of, view_of
from fedmed.systems.fedmoco.options import ContrastOptions
from fedmed.training.trainer import endless, scaled_learning_rate
from fedmed.training.unlabelled import UnlabelledTrainer

TRAINER = ("epoch_length", "amp", "train_handlers")  # options of every engine


class MomentumContrastEngine(UnlabelledTrainer):
    """MoCo (arXiv 1911.05722) at one site, with the two additions of FedMoCo (arXiv 2109.07504).

    One iteration:

    1. two views of the batch, ``augment`` called once for each;
    2. ``θ_key ← m θ_key + (1 - m) θ_query`` (Eq. 2), then keys of the second view, without gradient;
    3. queries of the first view; InfoNCE (Eq. 1) of each query with its key, against the queue;
    4. one optimizer step, then the keys enter the queue.

    *Metadata transfer*: after :meth:`receive` got other sites' feature statistics, each iteration adds fresh draws
    from them to the negatives, shared by the batch (Eq. 5). They never enter the queue. *Self-adaptive aggregation*:
    :meth:`extras` gives ``rsa``, how similarly the received and the trained model see the probe images (Eq. 6).

    The first run fills the queue with keys of un-trained batches. The key encoder starts each run as a copy of the
    received model; its BatchNorm statistics are its own. Queue and key encoder are private.

    Args:
        device, max_epochs, optimizer: as in :class:`UnlabelledTrainer`.
        unlabeled_loader: batches with ``image`` (B, 2, C, H, W), two views to start from, or (B, C, H, W), from
            which both start; and ``number`` (B,), which image of the site each is, if own keys are to be told.
        network: gives features (B, d) of norm 1 (or 0), at least 0.
        augment: makes a view (B, C, H, W) of a batch on the device.
        probe_loader: the same images in the same order each time, ``image`` (B, C, H, W), not augmented, for
            ``rsa``; None = no ``rsa``.
        seed: of the synthetic draws.
        epochs_before: epochs that the federation had done before this run, for ``milestones``; None = those that this
            site has done, which are fewer if it missed a round.
        images: images that the site trains on, by which ``own_keys: auto`` decides; None: not known.
        options: of :class:`ContrastOptions`, and the rest of :class:`UnlabelledTrainer`.

    ``engine.state.output`` has detached scalars: ``loss``; those of :func:`contrast_scalars`; with numbered images
    ``own_keys``, the share of queries that have a key of their own image in the queue; with other sites' statistics
    ``clamped_fraction`` of :class:`SyntheticNegatives`.
    """

    lists: ClassVar[str] = "'unlabeled' or 'training'"

    def __init__(
        self,
        device: torch.device | str,
        max_epochs: int,
        unlabeled_loader: Iterable[Mapping[str, Any]] | None,
        network: nn.Module,
        optimizer: torch.optim.Optimizer,
        augment: Callable[[Tensor], Tensor],
        probe_loader: Iterable[Mapping[str, Any]] | None = None,
        seed: int = 0,
        epochs_before: float | None = None,
        images: int | None = None,
        **options: Any,
    ) -> None:
        trainer = {name: options.pop(name) for name in TRAINER if name in options}
        self.options = ContrastOptions(**options)
        super().__init__(device, max_epochs, unlabeled_loader, network, optimizer, **trainer)
        self.augment, self.probe_loader = augment, probe_loader
        self.draws = torch.Generator().manual_seed(derive_seed(seed, "synthetic negatives"))
        self.keys = MomentumKeys(self.options, self.state.device, images)
        self.synthetic: SyntheticNegatives | None = None
        self.epochs_before, self.epochs_done, self.similarity = epochs_before, 0, 1.0
        self.add_event_handler(Events.STARTED, self._fill_queue)
        self.add_event_handler(Events.ITERATION_STARTED(once=1), self._compare_queue)

    def run(self) -> None:  # type: ignore[override] # as in StatefulTrainer
        """Train ``max_epochs`` epochs and measure how much the network's view of the probe images changed."""
        probe = list(self.probe_loader or ())  # the same images for both models
        before = view_of(self.network, probe, self.state.device)
        self.keys.begin(self.network)
        super().run()
        self.epochs_done += self.state.max_epochs
        self.similarity = similarity_of(before, view_of(self.network, probe, self.state.device))

    def receive(self, extras: Mapping[str, Any]) -> None:
        """Take ``others``, the feature statistics of the other sites, for this run's negatives (Eq. 5).

        Raises:
            JobError: any other name is given.
            FedMedError: the statistics are not possible ones.
        """
        super().receive({name: value for name, value in extras.items() if name != "others"})
        others = list(extras.get("others", ()))
        count = self.options.draws_of_each(len(others)) if others else 0
        self.synthetic = SyntheticNegatives(others, count, self.options.box_cox, self.draws) if count else None

    def extras(self) -> dict[str, float | Tensor]:
        """``rsa``: Spearman's correlation r_k in [-1, 1] (Eq. 6), 1 without a step; ``{}`` without probe images."""
        return {} if self.probe_loader is None else {"rsa": self.similarity}

    def state_dict(self) -> dict[str, Any]:  # type: ignore[override] # as in StatefulTrainer
        """Return what must outlive a round: also the queue, the epochs done and, if it goes on, the key encoder."""
        return {**self.keys.state_dict(), **super().state_dict(), "epochs_done": self.epochs_done}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self.epochs_done = int(state_dict.get("epochs_done", 0))
        self.keys.load_state_dict(state_dict)

    def _fill_queue(self) -> None:
        """Fill the queue with keys of enough batches, without training; not if an earlier run left a full queue."""
        batches = endless(self.data_loader, f"the loader of images is empty; list some under {self.lists}")
        while not self.keys.full:
            self.fire_event(Events.GET_BATCH_STARTED)  # an aborted job stops here too
            batch = next(batches)
            self.keys.enqueue(self._keys_of(self.augment(self._pair(batch)[1])), batch.get("number"))

    def _compare_queue(self) -> None:
        if not self.epochs_done:  # once for a site
            steps = self.state.epoch_length * self.state.max_epochs
            self.keys.compare_with_round(steps, len(self.state.batch["image"]))

    def _iteration(self, engine: "MomentumContrastEngine", batchdata: dict[str, Any]) -> dict[str, Tensor]:
        query_view, key_view = (self.augment(images) for images in self._pair(batchdata))
        self.keys.follow(self.network)
        keys = self._keys_of(key_view)
        self.network.train()
        self.optimizer.zero_grad(set_to_none=True)
        queries = self._encode(self.network, query_view)
        self.fire_event(IterationEvents.FORWARD_COMPLETED)
        positive, numbers = (queries * keys).sum(dim=1), batchdata.get("number")
        negatives, same_image = self.keys.similarities(queries, numbers, self.synthetic)
        loss = info_nce(positive, negatives, self.options.temperature)
        self.fire_event(IterationEvents.LOSS_COMPLETED)
        self.backward(loss)
        self.fire_event(IterationEvents.BACKWARD_COMPLETED)
        before = self.epochs_done if self.epochs_before is None else self.epochs_before
        with scaled_learning_rate(self.optimizer, self.options.rate_factor(before + self.state.epoch - 1)):
            self.step(self.optimizer, self.options.max_grad_norm)
        self.keys.enqueue(keys, numbers)
        self.state.output = {"loss": loss.detach(), **contrast_scalars(queries, positive, negatives)}
        if same_image is not None:
            self.state.output["own_keys"] = same_image
        if self.synthetic is not None:
            clamped = self.synthetic.clamped_fraction
            self.state.output["clamped_fraction"] = torch.full((), clamped, device=queries.device)
        self.fire_event(IterationEvents.MODEL_COMPLETED)
        return self.state.output

    def _pair(self, batchdata: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        """The images that the two views start from: (B, C, H, W) each."""
        images, _ = self.prepare_batch(batchdata, self.state.device, self.non_blocking)
        if images.ndim == 4:
            return images, images
        if images.ndim == 5 and images.shape[1] == 2:
            return images[:, 0], images[:, 1]
        raise FedMedError(
            f"MomentumContrastEngine: a batch of images has shape {tuple(images.shape)}; the loader must give "
            "(B, 2, C, H, W) or (B, C, H, W)"
        )

    def _encode(self, network: nn.Module, images: Tensor) -> Tensor:
        """Features (B, d), float32: half precision would lose the differences between similarities."""
        with torch.autocast("cuda", enabled=self.amp):
            return network(images).float()

    @torch.no_grad()
    def _keys_of(self, images: Tensor) -> Tensor:
        return self._encode(self.keys.network, images)
