"""From which side a radiograph was taken, in the words of headers and tables."""

import pytest

from fedmed.data.prepare.xray_view import TAKEN, WantedViews


@pytest.mark.parametrize(
    ("view", "fault"),
    [
        *((view, "") for view in ("PA", "ap", "AP/PA", "Frontal", "AP SUPINE", "postero-anterior", "PA (stehend)", "")),
        *((view, "from the side") for view in ("seitlich", "Profil", "PA/LAT", "lat.", "LLO", "Lateral", "OBLIQUE")),
        *((view, "not known to be frontal") for view in ("DECUBITUS", "AP DECUB", "swimmer", "7")),
    ],
)
def test_only_views_that_are_known_to_be_frontal_are_taken(view, fault):
    said = TAKEN.fault(view, "CHEST")
    assert fault in said and bool(said) is bool(fault)
    assert not WantedViews(views=(view.upper() or "UNKNOWN",)).fault(view, "CHEST")
