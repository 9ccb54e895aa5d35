"""The site's gate on FLARE: a filter for the results of tasks, configured by nothing but the site's own YAML."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from nvflare.apis.filter import Filter
from nvflare.apis.fl_constant import FLContextKey, ReturnCode
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable, make_reply
from nvflare.app_common.utils.fl_model_utils import FLModelUtils

from fedmed.errors import FedMedError, PrivacyError
from fedmed.federation.opened_model import Progress
from fedmed.flare.convert import answer_to_model, model_to_answer
from fedmed.messages.answers import Answer, Release, Update
from fedmed.messages.task import Task
from fedmed.privacy.limits import SiteLimits
from fedmed.settings.site import load_site

log = logging.getLogger("fedmed.site")
# Properties of a task's context at the site; private ones do not travel.
TASK = "fedmed.task"  # the task, without its tensors
HANDLED = "fedmed.limits.handled"  # the reply that has passed the gate
EMPTY = torch.empty(0)  # in the place of a tensor where only its name matters
CODES = {value for name, value in vars(ReturnCode).items() if not name.startswith("_")}


def site_limits(fl_ctx: FLContext) -> SiteLimits:
    """The site's limits for the running job, from the site's YAML.

    Raises:
        SiteConfigError: there is no such file, or a wrong one.
    """
    workspace = fl_ctx.get_engine().get_workspace()
    site = load_site(fl_ctx.get_identity_name(), Path(workspace.get_root_dir()))
    return SiteLimits(site, Path(workspace.get_run_dir(fl_ctx.get_job_id())) / "fedmed")


class SiteLimitsFilter(Filter):
    """Lets an answer pass as far as the site's own YAML allows it, or replaces it by an error code.

    FedMed's executors ask it before they return an answer, since some of FLARE's workflows send answers from site to
    site and ask no filter. It also stands in the site's ``local/privacy.json``, where no job reaches it, against
    executors of another make; and in the job, for sites without such a file. The first one acts: its reply is
    remembered in the task's context, so nothing is clipped, noised, converted or written down twice. What leaves is
    put together anew from the checked answer. A job that gives the filter arguments does not start.
    """

    def __init__(self) -> None:
        super().__init__()
        self._limits: SiteLimits | None = None

    def process(self, shareable: Shareable, fl_ctx: FLContext) -> Shareable:
        """Called by FLARE: return what leaves the site."""
        if fl_ctx.get_prop(HANDLED) is shareable:
            return shareable
        return self.limit(str(fl_ctx.get_prop(FLContextKey.TASK_NAME)), shareable, fl_ctx)

    def limit(self, name: str, answer: Answer | Shareable, fl_ctx: FLContext) -> Shareable:
        """Return what may leave of an answer to the task ``name``, converted for FLARE. Never raises.

        Args:
            name, fl_ctx: of the task.
            answer: as FedMed's own client makes it, or as FLARE carries it: an error code, or the answer of an
                executor of another make, which is opened and searched for what does not belong to it.
        """
        reply = make_reply(ReturnCode.TASK_RESULT_FILTER_ERROR)
        try:
            reply = self._limited(name, answer, fl_ctx)
        except FedMedError as error:
            self._refused(name, error, fl_ctx)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with an answer, it must not leave
            log.exception("%s: the answer cannot be checked", fl_ctx.get_identity_name())
            self._refused(name, error, fl_ctx)
        fl_ctx.set_prop(HANDLED, reply, private=True, sticky=False)
        return reply

    def _limited(self, name: str, answer: Answer | Shareable, fl_ctx: FLContext) -> Shareable:
        self._limits, round = self._limits or site_limits(fl_ctx), _round(fl_ctx)
        if isinstance(answer, Shareable):
            code = answer.get_return_code()
            if code != ReturnCode.OK:  # the site's own error: the code may leave, its text may not
                code = code if code in CODES else ReturnCode.EXECUTION_EXCEPTION
                self._limits.refused(name, round, f"the task ended with {code}; see the site's log")
                return make_reply(code)
            answer = _opened(name, answer, self._limits.site.site)
        return FLModelUtils.to_shareable(answer_to_model(self._limits.answer(name, round, answer)))

    def _refused(self, name: str, error: Exception, fl_ctx: FLContext) -> None:
        log.error("%s: an answer was held back: %s", fl_ctx.get_identity_name(), error)
        if self._limits is None:  # the site's settings themselves are wrong
            return
        reason, task = str(error) or type(error).__name__, fl_ctx.get_prop(TASK)
        self._limits.refused(name, _round(fl_ctx), reason)
        if isinstance(task, Task):
            Progress(self._limits.site.site, self._limits.folder).event("error", task, message=reason)


def _round(fl_ctx: FLContext) -> int | None:
    """Round of the task; a strange executor does not say it."""
    task = fl_ctx.get_prop(TASK)
    return task.round if isinstance(task, Task) else None


def _opened(name: str, shareable: Shareable, site: str) -> Answer:
    """Return the answer that an executor of another make gives, its tensors copied: what it changes later stays here.

    Raises:
        FedMedError: it is not an answer to this task, or holds more.
    """
    answer = bare = model_to_answer(name, FLModelUtils.from_shareable(shareable), site)
    if isinstance(answer, Update | Release):
        bare = replace(answer, tensors=dict.fromkeys(answer.tensors, EMPTY))
    known = FLModelUtils.to_shareable(answer_to_model(bare))  # the keys that it may have
    known.set_return_code(ReturnCode.OK)
    if extra := _unknown(shareable, known):
        raise PrivacyError(f"the answer to task '{name}' carries '{extra}', which is not a part of it")
    return answer


def _unknown(sent: Mapping[str, Any], known: Mapping[str, Any], place: str = "") -> str | None:
    """Return the place of the first key of an answer that a FedMed answer of its kind does not have."""
    for key, value in sent.items():
        where = f"{place}/{key}"
        if key not in known or (isinstance(value, Mapping) and not isinstance(known[key], Mapping)):
            return where
        if isinstance(value, Mapping) and (inner := _unknown(value, known[key], where)):
            return inner
    return None
