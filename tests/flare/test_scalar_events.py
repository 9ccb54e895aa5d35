"""The one event that leaves a site is a scalar that its limits have let pass, put together anew."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from nvflare.apis.analytix import AnalyticsData, AnalyticsDataType
from nvflare.apis.dxo import from_shareable
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FedEventHeader, FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.utils.analytix_utils import create_analytic_dxo

from fedmed.errors import PrivacyError
from fedmed.flare.scalar_events import send_scalar, taken

PATIENT = "/srv/patients/Meier-4711"


class Sender(FLComponent):
    """Sends as NVFlare does, within the call that fires the event.

    Args:
        out: called with the event; what it returns or raises is kept.
    """

    def __init__(self, out):
        super().__init__()
        self.out, self.said = out, None

    def fire_event(self, event_type, fl_ctx):
        made = fl_ctx.get_prop(FLContextKey.EVENT_DATA)
        made.set_header(FedEventHeader.EVENT_TYPE, f"fed.{event_type}")
        try:
            self.said = self.out(made)
        except PrivacyError as error:
            self.said = str(error)


def said(out):
    """Send a scalar and let this happen to the event on its way; return what comes of it."""
    sender = Sender(out)
    send_scalar(sender, "train/loss", 0.5, 3, FLContext())
    return sender.said


def event(kind="fed.analytix_log_stats", tag="train/loss", value=0.5, data_type=AnalyticsDataType.SCALAR, step=3):
    made = create_analytic_dxo(tag=tag, value=value, data_type=data_type, global_step=step).to_shareable()
    made.set_header(FedEventHeader.EVENT_TYPE, kind)
    made.set_header(FedEventHeader.EVENT_ID, "an id")
    return made


def test_a_scalar_that_has_passed_leaves_once_and_bare():
    kept = []

    def out(made):
        made["more"], made["DXO"]["data"]["more"] = PATIENT, PATIENT
        made.set_header("more", PATIENT)
        kept.append(made)
        return taken(made)

    anew = said(out)
    assert PATIENT not in repr(anew) and PATIENT in repr(kept)
    data = AnalyticsData.from_dxo(from_shareable(anew))
    assert (data.tag, data.value, data.step, data.data_type) == ("train/loss", 0.5, 3, AnalyticsDataType.SCALAR)
    with pytest.raises(PrivacyError, match="something else than a scalar that has passed"):
        taken(kept[0])
    assert "has passed" in said(lambda made: (taken(made), taken(made)))
    assert "has passed" in said(lambda made: in_another_thread(taken, made))


def in_another_thread(do, *args):
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(do, *args).result()


@pytest.mark.parametrize(
    "kind",
    [
        *(f"fed.{name}" for name in vars(EventType).values() if isinstance(name, str) and name.startswith("_")),
        *("analytix_log_stats", "fed.analytix_log_stats.x", "", None),
    ],
)
def test_no_other_event_leaves_whatever_it_holds(kind):
    assert "may not leave: scalars for TensorBoard alone" in said(lambda _: taken(event(kind)))


@pytest.mark.parametrize(
    "made",
    [
        *(event(tag=PATIENT), event(value=0.25), event(step=4), event(value=PATIENT, data_type=AnalyticsDataType.TEXT)),
        *(
            event(value={"loss": 0.5}, data_type=AnalyticsDataType.SCALARS),
            event(value=b"x", data_type=AnalyticsDataType.IMAGE),
        ),
        event(value={"text": PATIENT}, data_type=AnalyticsDataType.PARAMETERS),
    ],
)
def test_no_other_content_leaves_under_its_name(made):
    assert "something else than a scalar" in said(lambda _: taken(made))


@pytest.mark.parametrize("made", [Shareable(), None, "text", {"x": 1}])
def test_what_is_no_event_does_not_leave(made):
    with pytest.raises(PrivacyError):
        taken(made)
    broken = Shareable({"x": PATIENT})
    broken.set_header(FedEventHeader.EVENT_TYPE, "fed.analytix_log_stats")
    with pytest.raises(PrivacyError):
        taken(broken)
