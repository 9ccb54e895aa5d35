"""Executors: FLARE's face of a site."""

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_constant import ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.apis.signal import Signal
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmed.errors import Aborted, FedMedError, JobError
from fedmed.federation.client import Client
from fedmed.federation.warm_starts import site_answer
from fedmed.flare.convert import model_to_task
from fedmed.flare.filters import TASK, SiteLimitsFilter, site_limits
from fedmed.flare.scalar_events import send_scalar
from fedmed.jobs.job_folder import read_app
from fedmed.messages.answers import Answer
from fedmed.messages.task import Task
from fedmed.methods.declarations import ROLES
from fedmed.privacy.limits import SiteLimits
from fedmed.privacy.live_scalars import LiveScalars, declared_tags

log = logging.getLogger("fedmed.site")


class BundleExecutor(Executor):
    """Runs a bundle's training, validation and evaluation at a site, in the role that the study gives it."""

    ROLES: tuple[str, ...] = ROLES

    def __init__(self) -> None:
        super().__init__()
        self._client: Client | None = None
        self._do: Callable[[Client, Task], Answer] = Client.answer
        self._limits: SiteLimits | None = None
        self._live: LiveScalars | None = None
        self._gate = SiteLimitsFilter()

    def execute(self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal) -> Shareable:
        """Do one task, and let the site's limits convert for FLARE what may leave of the answer.

        Whatever goes wrong is logged here, at the site; only a return code travels. Logs go to Python's logging: a job
        can have FLARE's own messages sent to the server.
        """
        return self._gate.limit(task_name, self._answer(task_name, shareable, fl_ctx, abort_signal), fl_ctx)

    def _answer(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Answer | Shareable:
        task = None
        try:
            task = model_to_task(FLModelUtils.from_shareable(shareable))
            fl_ctx.set_prop(TASK, replace(task, tensors={}, extras={}), private=True, sticky=False)  # for the ledger
            return self._work(task_name, task, fl_ctx, abort_signal)
        except Aborted:
            log.warning("%s: task '%s' aborted", fl_ctx.get_identity_name(), task_name)
            return make_reply(ReturnCode.TASK_ABORTED)
        except FedMedError as error:
            return self._failed(error, task, task_name, fl_ctx)
        except Exception as error:  # noqa: BLE001 - an escaping exception would end the whole job, at every site
            log.exception("%s: task '%s' failed unexpectedly", fl_ctx.get_identity_name(), task_name)
            return self._failed(error, task, task_name, fl_ctx)

    def _work(self, name: str, task: Task, fl_ctx: FLContext, abort_signal: Signal) -> Answer:
        limits = self._limits = self._limits or site_limits(fl_ctx)
        client = self._client = self._client or self._start(limits, fl_ctx)
        client.should_abort = lambda: abort_signal.triggered
        client.progress.stream = lambda tag, value, step: self._send(tag, value, step, fl_ctx)
        if self._live:
            self._live.begin()
        return self._do(client, replace(task, name=name))

    def _start(self, limits: SiteLimits, fl_ctx: FLContext) -> Client:
        site, app = limits.site, fl_ctx.get_engine().get_workspace().get_app_dir(fl_ctx.get_job_id())
        job = read_app(Path(app), site.allowed_classes)
        if (role := job.role(site.site)) not in self.ROLES:
            known = " or ".join(self.ROLES)
            raise JobError(f"{type(self).__name__} is for the role {known}; {job.source} says '{role}'")
        self._do = site_answer(site.site, job)
        client = Client(job, site, limits.folder)
        self._live = LiveScalars(limits, declared_tags(job.method, client.bundle.score))
        return client

    def _send(self, tag: str, value: float, step: int, fl_ctx: FLContext) -> None:
        if self._live and self._live.passes(tag, value, step):
            send_scalar(self, tag, value, step, fl_ctx)

    def _failed(self, error: Exception, task: Task | None, name: str, fl_ctx: FLContext) -> Shareable:
        log.error("%s: task '%s': %s", fl_ctx.get_identity_name(), name, error)
        if self._client and task:
            self._client.progress.event("error", task, message=str(error) or type(error).__name__)
        return make_reply(ReturnCode.EXECUTION_EXCEPTION)


class SupervisedExecutor(BundleExecutor):
    """A site with labels (``supervised``), or one that is only scored (``evaluate``)."""

    ROLES = ("supervised", "evaluate")


class ConsistencyExecutor(BundleExecutor):
    """A site without labels (``unsupervised``), whatever its method; with some labels it may use both."""

    ROLES = ("unsupervised",)


class ContrastiveExecutor(ConsistencyExecutor):
    """The same under the name that jobs of pre-training give it."""
