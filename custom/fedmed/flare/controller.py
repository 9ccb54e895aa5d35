"""The controller: sends each site its task and hands the answers to the server's side."""

import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from nvflare.apis.analytix import ANALYTIC_EVENT_TYPE, AnalyticsDataType
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.analytix_utils import create_analytic_dxo
from nvflare.app_common.abstract.fl_model import FLModel
from nvflare.app_common.workflows.model_controller import ModelController

from fedmed.errors import Aborted, JobError
from fedmed.federation.server import Server
from fedmed.federation.workflow import run_federation
from fedmed.flare.aggregators import BundleAggregator
from fedmed.flare.convert import CONVERT, task_to_model
from fedmed.flare.persistor import BundleModelPersistor
from fedmed.messages.task import Task

GONE = "the job's process is gone"
POLL = 0.05  # seconds; NVFlare's default of 0.5 would be most of a small round


class FederationController(ModelController):
    """Runs a federation by roles, as the study in the server's app describes it."""

    def __init__(self) -> None:
        super().__init__(persistor_id="persistor", ignore_result_error=True, task_check_period=POLL)
        self.server: Server | None = None

    def run(self) -> None:
        """Called by FLARE: the whole job."""
        aggregator = self.get_component("aggregator")
        if not isinstance(aggregator, BundleAggregator) or not isinstance(self.persistor, BundleModelPersistor):
            raise JobError("the job needs FedMed's components with the ids 'aggregator' and 'persistor'")
        workspace, job_id = self.engine.get_workspace(), self.fl_ctx.get_job_id()
        folder = Path(workspace.get_run_dir(job_id)) / "fedmed"
        store, job = self.persistor.store(self.fl_ctx), self.persistor.job(self.fl_ctx)
        kit = Path(workspace.get_root_dir())
        self.server = aggregator.server = Server(job, store, folder, kit)
        self.server.abort_by(lambda: self.abort_signal.triggered)
        self.server.stream = self._stream
        run_federation(self.server, partial(self._ask, aggregator), aggregator.aggregate_model)

    def _stream(self, tag: str, value: float, step: int) -> None:
        """Hand a scalar to the receiver for TensorBoard, as if a site had sent it."""
        dxo = create_analytic_dxo(tag=tag, value=value, data_type=AnalyticsDataType.SCALAR, global_step=step)
        with self.engine.new_context() as fl_ctx:
            fl_ctx.set_prop(FLContextKey.EVENT_DATA, dxo.to_shareable(), private=True, sticky=False)
            self.fire_event(f"fed.{ANALYTIC_EVENT_TYPE}", fl_ctx)

    def _ask(self, aggregator: BundleAggregator, tasks: Mapping[str, Task]) -> dict[str, Any]:
        answers: dict[str, Any] = {}
        server = aggregator.server
        connected = {client.name for client in self.engine.get_clients()}
        for site, task in tasks.items():
            if site not in connected or self.get_client_disconnect_time(site):  # FLARE would wait for it in vain
                server.fail(site, "not connected")
                continue
            take = partial(self._take, aggregator, task.name, answers)
            timeout = server.study.task_timeout
            self.send_model(task.name, task_to_model(task), targets=[site], timeout=timeout, callback=take)
        while self.get_num_standing_tasks() and not self.abort_signal.triggered:
            time.sleep(POLL)
        gone = [site for site in tasks if self.get_client_disconnect_time(site)]
        if self.abort_signal.triggered:
            why = f": {GONE} at {', '.join(gone)}" if gone else ""
            raise Aborted(f"the job was aborted{why}; the models of finished rounds are kept")
        for site in gone:
            if site not in answers and site not in server.round.updates:
                server.fail(site, f"{GONE}; did the site start anew?")
        return answers

    def _take(self, aggregator: BundleAggregator, name: str, answers: dict[str, Any], model: FLModel) -> bool:
        """Return False for a refused update: FLARE then records it as refused."""
        if name == "train":
            return aggregator.accept_model(model)
        answers[model.meta["client_name"]] = CONVERT[name](model)
        return True

    def _accept_train_result(
        self, client_name: str, result: Shareable, fl_ctx: FLContext, is_unknown_task: bool = False
    ) -> bool:
        code = result.get_return_code()
        if code and code != ReturnCode.OK and not is_unknown_task and self.server:
            self.server.fail(client_name, f"answered {code}; the cause is in that site's own log")
        return super()._accept_train_result(client_name, result, fl_ctx, is_unknown_task)
