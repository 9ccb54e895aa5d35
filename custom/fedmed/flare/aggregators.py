"""Aggregators as FLARE sees them; the arithmetic is in ``fedmed.aggregation``."""

from collections.abc import Mapping
from typing import Any

from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator

from fedmed.errors import JobError, UpdateRefused
from fedmed.federation.server import Server
from fedmed.flare.convert import model_to_update, to_numpy


class BundleAggregator(ModelAggregator):
    """Hands updates to the server's side of the federation.

    Args:
        args: plain arguments, passed unchanged to :meth:`fedmed.federation.server.Server.from_args`.
    """

    def __init__(self, **args: Any) -> None:
        super().__init__()
        self.args: Mapping[str, Any] = args
        self.server: Server | None = None

    def bind(self, server: Server) -> None:
        """Called by the controller before the first round."""
        self.server = server

    def accept_model(self, model: FLModel) -> bool:
        """Return whether the update takes part in the round; a refusal is logged with site and tensor."""
        try:
            update = model_to_update(model)
        except UpdateRefused as error:
            self.server.fail(error.site, error.reason)
            return False
        try:
            self.server.accept(update)
        except UpdateRefused as error:
            self.warning(str(error))
            return False
        return True

    def aggregate_model(self) -> FLModel:
        """End the round and return the new global model.

        Raises:
            RoundFailed: too few updates were accepted; the model is unchanged.
        """
        self.server.finish_round()
        return FLModel(params_type=ParamsType.FULL, params=to_numpy(self.server.tensors))

    def reset_stats(self) -> None:
        """Nothing to do: the server starts every round afresh."""


class IterationWeightedAggregator(BundleAggregator):
    """Mean of all layers weighted by local steps and user weights (Yang et al. 2021, Eq. 2 and 3), or a robust rule.

    Args:
        args: ``normalise``, ``user_weights`` (site -> weight), ``buffers``; ``weighting``: ``iterations``, ``samples``
            or ``uniform``; ``max_norm``, beyond which an update is refused; ``clip_norm``, to which it is scaled down;
            ``rule``: ``mean``, ``median`` or ``trimmed_mean``, with ``trim``. See docs/robust.md.
    """

    def __init__(self, **args: Any) -> None:
        if args.get("weighting") == "self_adaptive":
            raise JobError("IterationWeightedAggregator does not weigh so; use SelfAdaptiveAggregator")
        if args.get("sharing", "full") != "full":
            raise JobError("IterationWeightedAggregator shares all layers; use PartialSharingAggregator")
        super().__init__(**args)


class SelfAdaptiveAggregator(BundleAggregator):
    """Mean weighted by how much each site's representation changed in the round (FedMoCo, Eq. 7).

    Args:
        args: as above, with ``weighting: self_adaptive``; ``form`` (``gap`` or ``softmax``) and ``floor``, the least
            that a site counts. A site whose ``rsa`` does not leave it makes a round weigh by samples. ``sharing`` may
            be partial.
    """

    def __init__(self, **args: Any) -> None:
        if args.get("weighting") != "self_adaptive":
            raise JobError("SelfAdaptiveAggregator needs 'weighting': 'self_adaptive'")
        super().__init__(**args)


class PartialSharingAggregator(BundleAggregator):
    """Each shared layer's iteration-weighted mean over the sites that send it; other layers never arrive.

    Args:
        args: as above, with ``sharing``: one of the bundle's groups, or role -> group.
    """

    def __init__(self, **args: Any) -> None:
        if args.get("sharing", "full") == "full":
            raise JobError("PartialSharingAggregator needs 'sharing', a group of the bundle other than 'full'")
        super().__init__(**args)
