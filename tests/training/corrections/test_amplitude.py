"""A site's amplitudes for the others, the bank that it keeps, and the images that an engine sees then."""

import pytest
import torch
from torch import nn

from fedmed.errors import FedMedError
from fedmed.systems.algorithms.feddg import AmplitudeMix, MixedAmplitudes, OwnAmplitudes, half_spectra
from fedmed.training.corrected_steps import Corrections
from fedmed.training.trainer import SupervisedEngine

from . import conftest

SHAPE = (3, 4, 6)


def images(n, seed=0, shape=SHAPE):
    batch = torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))
    return [{"image": image, "label": torch.zeros(1)} for image in batch]


def bank(n, seed=0, shape=SHAPE):
    return {"amplitude": half_spectra(torch.stack([item["image"] for item in images(n, seed, shape)]))}


def begun(others=(), kept=None, **options):
    return conftest.begun(MixedAmplitudes(OwnAmplitudes(images(3), 2), **options), *others, kept=kept)


@pytest.mark.parametrize(("n", "most", "places"), [(10, 3, [1, 5, 8]), (3, 5, [0, 1, 2]), (1000, 1, [500]), (0, 4, [])])
def test_amplitudes_come_from_images_spread_over_the_list(n, most, places):
    listed, batches = images(n), []
    result = OwnAmplitudes(listed, most)(before_batch=lambda: batches.append(None))
    assert bool(batches) == bool(result) == bool(n)
    if n:
        chosen = torch.stack([listed[place]["image"] for place in places])
        torch.testing.assert_close(result["amplitude"], half_spectra(chosen))  # in batches of another size


def test_all_images_or_those_that_are_asked_for():
    torch.testing.assert_close(OwnAmplitudes(images(70), 70)()["amplitude"], bank(70)["amplitude"])  # several batches
    assert OwnAmplitudes(images(3), low_frequency=0.3)()["amplitude"].shape == (3, 3, 3, 2)


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan"), 255.0])
def test_images_that_are_not_plain_are_refused(value):
    wrong = images(2)
    wrong[1]["image"][0, 0, 0] = value
    with pytest.raises(FedMedError, match="before they are normalised, and these go from"):
        OwnAmplitudes(wrong)()


def test_the_bank_is_the_sites_own_and_the_others_and_is_kept():
    others = [bank(1, 1), bank(4, 2)]
    term, local = begun(others), OwnAmplitudes(images(3), 2)()["amplitude"]
    kept = term.state_dict()
    assert torch.equal(kept["bank"], torch.cat([local, *(other["amplitude"] for other in others)]))
    assert torch.equal(begun(kept=kept).state_dict()["bank"], kept["bank"]), "without the others' a second time"
    batch = torch.stack([item["image"] for item in images(4, 9)])
    mix, again = AmplitudeMix(kept["bank"]), begun(kept=kept)
    for _ in range(2):
        mixed = mix(batch)
        assert torch.equal(term.change_images(batch), mixed) and torch.equal(again.change_images(batch), mixed)
    foreign = begun(others, exclude_self=True).state_dict()["bank"]
    assert torch.equal(foreign, kept["bank"][2:])


def test_without_the_others_a_site_says_so_once(caplog):
    term = begun()
    assert len(term.state_dict()["bank"]) == 2 and "mixed with this site's own" in caplog.text
    caplog.clear()
    begun(kept=term.state_dict())
    alone = begun(kept=begun(exclude_self=True).state_dict(), exclude_self=True)
    assert caplog.text.count("images stay as they are") == 1 and "own" not in caplog.text
    batch = torch.rand(2, *SHAPE)
    assert alone.change_images(batch) is batch


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (bank(2, shape=(3, 5, 6)), r"of another image size: \(3, 4, 4\) and \(3, 5, 4\) in one bank"),
        ({"amplitude": torch.full((2, 3, 4, 4), float("nan"), dtype=torch.float16)}, "'amplitude' holds NaN, infinity"),
        ({"amplitude": torch.full((2, 3, 4, 4), -1, dtype=torch.float16)}, "'amplitude' holds NaN.* numbers below 0"),
        ({"amplitude": torch.full((2, 3, 4, 4), 1e9).half()}, "'amplitude' holds NaN, infinity"),
        ({"amplitude": torch.ones(2, 3, 4, 4)}, "not a table of half spectra in float16"),
        ({"amplitude": torch.ones(2, 3).half()}, "not a table"),
        ({"mu": torch.ones(2)}, "'amplitude' is not a table"),
        ([], "not a table"),
    ],
)
def test_amplitudes_that_cannot_be_are_refused(other, message):
    with pytest.raises(FedMedError, match=message):
        begun([other])


def test_wrong_numbers_of_images():
    for most in (0, True, 2.5):
        with pytest.raises(FedMedError, match="'bank_images' is .*; give a number of images"):
            OwnAmplitudes(images(1), most)


class Seen(nn.Linear):
    """Remembers what it is shown."""

    def __init__(self):
        super().__init__(6, 1)
        self.batches = []

    def forward(self, batch):
        self.batches.append(batch)
        return super().forward(batch).mean(dim=(1, 2))


def trained(*corrections):
    network = Seen()
    data = [{"image": torch.stack([item["image"] for item in images(4)]), "label": torch.zeros(4, 1)}] * 2
    optimizer = torch.optim.SGD(network.parameters(), lr=0.0)
    engine = SupervisedEngine("cpu", 1, data, network, optimizer, nn.MSELoss(), epoch_length=2)
    prepare = engine.prepare_batch
    Corrections(corrections).attach(engine, network.state_dict(), network.state_dict())
    engine.run()
    assert engine.prepare_batch is prepare, "as it was"
    return [batch.detach() for batch in network.batches], data


def test_an_engine_sees_mixed_images_and_without_the_correction_plain_ones():
    result, data = trained(begun([bank(2, 1)]))
    mix = AmplitudeMix(begun([bank(2, 1)]).state_dict()["bank"])
    assert all(torch.equal(batch, mix(item["image"])) for batch, item in zip(result, data, strict=True))
    plain, _ = trained()
    assert torch.equal(plain[0], data[0]["image"])
