"""Training of ψ beside the models of other sites."""

import copy

import pytest
import torch
import torch.nn.functional as F

from fedmed.data.augment import ScaleShift
from fedmed.errors import JobError
from fedmed.systems.fixmatch.fedmatch import PSI, Decomposed, HelpedEngine, noise
from fedmed.training.video_frames import FrameBatches

from ..conftest import assert_close
from .conftest import build, labelled_batches, outputs_of

WEIGHTS = {"agree_weight": 0.5, "learn_weight": 2.0, "size_weight": 1e-3, "distance_weight": 1e-2}


@pytest.fixture
def network():
    return Decomposed(build(norm=False), trains="psi")


@pytest.fixture
def frames():
    return [{"image": batch["image"]} for batch in labelled_batches()]


def engine_of(network, batches, confidence=0.0, **changes):
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-2)
    options = {"augment": ScaleShift(seed=3), "prepare_batch": FrameBatches(), **WEIGHTS, **changes}
    return HelpedEngine("cpu", 1, batches, network, optimizer, confidence=confidence, **options)


def other_psi(network, seed):
    """Return the ψ that another site may have trained."""
    generator = torch.Generator().manual_seed(seed)
    local = {name: value for name, value in network.state_dict().items() if name.startswith(PSI)}
    return {name: value + 0.3 * torch.randn(value.shape, generator=generator) for name, value in local.items()}


@pytest.mark.parametrize("count", [0, 2])
def test_equals_plain_pytorch(network, frames, count):
    """The whole objective, written out with helpers as networks of their own."""
    twin, helpers = copy.deepcopy(network), [other_psi(network, seed) for seed in range(count)]
    engine = engine_of(network, frames, 0.38)
    engine.receive({"helpers": helpers} if helpers else {})
    engine.run()
    optimizer, augment = torch.optim.Adam(twin.psi.parameters(), lr=1e-2), ScaleShift(seed=3)
    for batch in frames:
        images = batch["image"][:, 0].float() / 255
        models = [copy.deepcopy(twin) for _ in helpers]
        for model, psi in zip(models, helpers, strict=True):
            model.load_state_dict({**model.state_dict(), **psi})
        with torch.no_grad():
            local = twin.eval()(images).softmax(dim=1)
            said = [model.eval()(images).softmax(dim=1) for model in models]
        loss, counted = torch.zeros(()), 0
        weak, strong = twin.train()(torch.cat([images, augment(images)])).chunk(2)
        for i in range(len(images)):
            if local[i].max() < 0.38:
                continue
            counted += 1
            named = [int(p[i].argmax()) for p in (local, *said)]
            most = max(sorted(set(named)), key=named.count)
            loss = loss + 2.0 * F.cross_entropy(strong[i], torch.tensor(most))
            for p in said:
                kl = (p[i] * (p[i].log() - weak[i].log_softmax(dim=0))).sum()
                loss = loss + 0.5 * kl / len(said)
        loss = loss / max(1, counted)
        for sigma, psi in zip(twin.sigma.parameters(), twin.psi.parameters(), strict=True):
            loss = loss + 1e-3 * psi.abs().sum() + 1e-2 * (sigma - psi).pow(2).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_close(network, twin, atol=1e-5)


def test_sigma_does_not_move_and_helpers_change_what_is_learned(network, frames):
    before, alone = copy.deepcopy(network.state_dict()), copy.deepcopy(network)
    engine = engine_of(network, frames)
    engine.receive({"helpers": [other_psi(network, 5)]})
    result = outputs_of(engine)
    engine_of(alone, frames).run()
    after = network.state_dict()
    assert all(torch.equal(after[name], before[name]) for name in after if name.startswith("sigma."))
    assert any(not torch.equal(after[name], alone.state_dict()[name]) for name in after)
    assert all(output["helper_divergence"] > 0 and output["sure_fraction"] == 1 for output in result)
    assert all(0 < output["psi_share"] <= 1 and 1 / 3 <= output["commonest_fraction"] <= 1 for output in result)


def test_helpers_serve_until_others_come(network, frames):
    first, later = other_psi(network, 1), other_psi(network, 2)
    engine = engine_of(network, frames)
    assert "helpers" not in engine.state_dict()
    engine.receive({"helpers": [first]})
    again = engine_of(network, frames)
    again.load_state_dict(engine.state_dict())
    again.receive({})
    assert torch.equal(again.helpers[0]["psi.classifier.bias"], first["psi.classifier.bias"])
    again.receive({"helpers": [later]})
    assert len(again.helpers) == 1 and again.helpers[0].keys() == later.keys()
    assert torch.equal(again.helpers[0]["psi.classifier.bias"], later["psi.classifier.bias"])


def test_its_answer_is_that_of_the_trained_model_to_one_picture(network, frames):
    engine = engine_of(network, frames)
    assert engine.extras() == {}
    engine.run()
    picture = noise(torch.Size([3, 12, 12]))
    assert torch.equal(picture, noise(torch.Size([3, 12, 12]))) and picture.min() >= 0 and picture.max() <= 1
    assert picture.mean() == pytest.approx(0.5, abs=0.03)
    assert (picture == 0).float().mean() == pytest.approx(0.16, abs=0.04)
    with torch.no_grad():
        expected = network.eval()(picture).softmax(dim=1)[0]
    assert torch.allclose(engine.extras()["noise_answer"], expected) and expected.sum() == pytest.approx(1)


def test_what_does_not_belong_to_it(network, frames):
    with pytest.raises(JobError, match="HelpedEngine has no use for bank"):
        engine_of(network, frames).receive({"bank": 1})
    engine = engine_of(network, frames)
    engine.receive({"helpers": [{"psi.x": torch.zeros(1)}]})
    with pytest.raises(JobError, match="does not fit this site's network"):
        engine.run()
