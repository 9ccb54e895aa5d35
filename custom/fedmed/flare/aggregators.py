"""Aggregators as FLARE sees them; the arithmetic is in ``fedmed.aggregation``."""

from nvflare.app_common.abstract.fl_model import FLModel, ParamsType
from nvflare.app_common.aggregators.model_aggregator import ModelAggregator

from fedmed.errors import UpdateRefused
from fedmed.federation.server import Server
from fedmed.flare.convert import model_to_update, to_numpy


class BundleAggregator(ModelAggregator):
    """Hands updates to the server's side of the federation, whose rule the study and its method name."""

    server: Server  # set by the controller before the first round

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
    """All layers of all sites: their mean, or what another rule that the study names makes of them."""


class SelfAdaptiveAggregator(BundleAggregator):
    """All layers, weighted by a number that each site reports."""


class PartialSharingAggregator(BundleAggregator):
    """Shared layers alone, each over the sites that send it; others never arrive."""
