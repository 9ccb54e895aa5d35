"""Context of a task at a site, as FLARE hands it to an executor, and what FLARE carries to the other end."""

from types import SimpleNamespace

from nvflare.apis.fl_constant import ReservedKey
from nvflare.apis.fl_context import FLContext
from nvflare.app_common.decomposers import common_decomposers
from nvflare.app_common.utils.fl_model_utils import FLModelUtils
from nvflare.fuel.utils import fobs


def site_context(site, kit, run, app=None, task=None):
    """Context at ``site``, whose kit, run of the job and app of the job are these folders."""
    folders = {"get_root_dir": lambda: str(kit), "get_run_dir": lambda job: str(run)}
    workspace = SimpleNamespace(**folders, get_app_dir=lambda job: str(app))
    engine = SimpleNamespace(get_workspace=lambda: workspace, fire_event=lambda *a: None)
    values = {"ENGINE": engine, "IDENTITY_NAME": site, "RUN_NUM": "job", "TASK_NAME": task}
    context = FLContext()
    for key, value in values.items():
        if value is not None:
            context.set_prop(getattr(ReservedKey, key), value, private=True, sticky=False)
    return context


def in_bytes(shareable):
    common_decomposers.register()
    return fobs.dumps(shareable)


def over_the_wire(shareable):
    return fobs.loads(in_bytes(shareable))


def model_over_the_wire(model):
    return FLModelUtils.from_shareable(over_the_wire(FLModelUtils.to_shareable(model)))
