"""Common behaviour of all that a site tells of its images, and of what it makes of the others'."""

import pytest
import torch

from fedmed.errors import FedMedError
from fedmed.training.corrections.bands import MatchedBands, OwnBands
from fedmed.training.corrections.colour import MatchedColours, OwnColours
from fedmed.training.corrections.gamma import MatchedGamma, OwnIntensities
from fedmed.training.corrections.own_images import MOST

from .conftest import begun, listed

PICTURES = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
KINDS = {
    "amplitude_bands": (OwnBands, MatchedBands),
    "colour_statistics": (OwnColours, MatchedColours),
    "intensity_shares": (OwnIntensities, MatchedGamma),
}
each = pytest.mark.parametrize(("local", "matched"), KINDS.values(), ids=KINDS)


class LongList:
    """Counts which places are looked at."""

    def __init__(self):
        self.places = []

    def __len__(self):
        return 10 * MOST

    def __getitem__(self, place):
        self.places.append(place)
        return {"image": PICTURES[place % 4]}


@each
def test_of_a_long_list_images_spread_over_it_are_looked_at_and_without_images_nothing_is_told(local, matched):
    stops, images = [], LongList()
    local(images)(before_batch=lambda: stops.append(None))
    assert images.places == list(range(5, 10 * MOST, 10)) and len(stops) == MOST
    assert local([])() == local(None)() == {}


@each
def test_without_the_others_images_stay_as_they_are_and_that_is_said_once(local, matched, caplog):
    term = begun(matched(local(listed(PICTURES))))
    assert term.change_images(PICTURES) is PICTURES and caplog.text.count("site has told") == 1
    begun(matched(local(listed(PICTURES))), kept=term.state_dict())
    assert caplog.text.count("site has told") == 1
    assert matched.inference_settings(term.state_dict()) == {}


@pytest.mark.parametrize(
    ("name", "length", "beyond"),
    [("amplitude_bands", 17, 1e6), ("colour_statistics", 9, 1e3), ("intensity_shares", 100, 7.0)],
)
def test_what_no_site_can_have_told_is_refused(name, length, beyond):
    local, matched = KINDS[name]
    values = [torch.ones(length - 1), torch.ones(0), torch.full((length,), torch.nan), torch.full((length,), beyond)]
    for other in (*({name: value} for value in values), {name: [0.01] * length}, {name: None}, {"mu": 1}, []):
        with pytest.raises(FedMedError, match=f"another site's '{name}'"):
            begun(matched(local(listed(PICTURES))), other)
