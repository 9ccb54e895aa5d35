"""The one event that leaves a site: a scalar for TensorBoard, which the site's limits have let pass.

NVFlare turns any event of a site into one at the server, with whatever it carries, an error's text included. A kit's
outgoing messages (:mod:`fedmed.flare.site_messages`) therefore know the scalar that has passed, and put it together
anew before it leaves.
"""

import threading
from typing import Any

from nvflare.apis.analytix import AnalyticsData, AnalyticsDataType
from nvflare.apis.dxo import from_shareable
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FedEventHeader
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.apis.utils.analytix_utils import create_analytic_dxo, send_analytic_dxo

from fedmed.errors import PrivacyError
from fedmed.jobs.app_shape import EVENT, PREFIX

HEADERS = (  # that NVFlare sets itself
    *(FedEventHeader.EVENT_TYPE, FedEventHeader.TIMESTAMP, FedEventHeader.EVENT_ID, FedEventHeader.ORIGIN),
    *(ReservedHeaderKey.TOPIC, ReservedHeaderKey.PEER_PROPS),
)
Scalar = tuple[str, float, int]  # name, value, step
_passing = threading.local()  # its ``scalar``: the one that this thread is sending; NVFlare sends in the same thread


def send_scalar(sender: FLComponent, tag: str, value: float, step: int, fl_ctx: FLContext) -> None:
    """Send a scalar that the site's limits have let pass."""
    dxo = create_analytic_dxo(tag=tag, value=value, data_type=AnalyticsDataType.SCALAR, global_step=step)
    _passing.scalar = tag, value, step
    try:
        send_analytic_dxo(sender, dxo, fl_ctx)
    finally:
        _passing.scalar = None


def taken(event: Any) -> Shareable:
    """Return an outgoing event anew, with nothing but the scalar, which may leave this once.

    Raises:
        PrivacyError: it is another event, or a scalar that has not passed the site's limits.
    """
    kind = event.get_header(FedEventHeader.EVENT_TYPE) if isinstance(event, Shareable) else type(event).__name__
    if kind != PREFIX + EVENT:
        raise PrivacyError(f"the event '{kind}' may not leave: scalars for TensorBoard alone do")
    scalar = _scalar(event)
    if scalar is None or scalar != getattr(_passing, "scalar", None):
        raise PrivacyError("an event with something else than a scalar that has passed this site's limits")
    _passing.scalar = None
    tag, value, step = scalar
    dxo = create_analytic_dxo(tag=tag, value=value, data_type=AnalyticsDataType.SCALAR, global_step=step)
    anew = dxo.to_shareable()
    for header in HEADERS:
        anew.set_header(header, event.get_header(header))
    return anew


def _scalar(event: Shareable) -> Scalar | None:
    """The scalar in an event; None where there is something else."""
    try:
        data = AnalyticsData.from_dxo(from_shareable(event))
    except (TypeError, ValueError):
        return None
    if data is None or data.data_type != AnalyticsDataType.SCALAR or type(data.value) not in (int, float):
        return None
    step = data.step if data.step is not None else (data.kwargs or {}).get("global_step")
    return (data.tag, data.value, step) if isinstance(data.tag, str) and type(step) is int else None
