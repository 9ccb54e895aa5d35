import copy

import pytest
import torch
from torch import nn

from fedmed.data.augment.clip_views import ClipViews
from fedmed.errors import DataError, FedMedError
from fedmed.systems.fedcy.engine import CycleEngine
from fedmed.systems.fedcy.loss import CycleConsistencyLoss, feature_spread
from fedmed.training.video_frames import ClipBatches

from ..conftest import assert_close
from .conftest import build, clip_batches, outputs_of

SCALARS = {"loss", "cycle_error", "min_variance", "cycle_back", "cycle_chance", "feature_spread"}


def engine(network, batches, rate=0.01, epochs=1, **said):
    optimizer = said.pop("optimizer", torch.optim.Adam)(network.parameters(), lr=rate)
    views = said.pop("views", None)
    return CycleEngine("cpu", epochs, batches, network, optimizer, prepare_batch=ClipBatches(views), **said)


def changed(one, other):
    theirs = other.state_dict()
    return [name for name, value in one.state_dict().items() if not torch.equal(value, theirs[name])]


def pair_loss(loss, clips):
    """Mean over unordered pairs of L(U, V), by loops over pairs."""
    pairs = [(a, b) for a in range(len(clips)) for b in range(a)]
    both = [(clips[a][None], clips[b][None]) for a, b in pairs]
    return sum(loss.there_and_back(u, v).loss + loss.there_and_back(v, u).loss for u, v in both) / len(pairs)


@pytest.mark.parametrize("clips", [2, 3])
def test_it_is_the_plain_loop(clips):
    """Forward over all frames together, λ_t times the mean over unordered pairs, one step."""
    network, twin = build(), build()
    batches = clip_batches(clips=clips)
    result = outputs_of(engine(network, batches, 1e-4, cycle_weight=10.0, optimizer=torch.optim.SGD))
    loss, optimizer = CycleConsistencyLoss(), torch.optim.SGD(twin.parameters(), lr=1e-4)
    for batch, output in zip(batches, result, strict=True):
        twin.train()
        optimizer.zero_grad()
        features = twin.features(batch["image"].flatten(0, 1).float() / 255).unflatten(0, (clips, 5))
        value = 10.0 * pair_loss(loss, features)
        value.backward()
        optimizer.step()
        assert float(output["loss"]) == pytest.approx(float(value), rel=1e-4)
        assert float(output["feature_spread"]) == pytest.approx(float(feature_spread(features)), abs=1e-6)
        assert set(output) == SCALARS and not any(value.requires_grad for value in output.values())
    assert_close(network, twin)
    assert changed(network, build())


def test_the_classifier_takes_no_part():
    network = build()
    before = copy.deepcopy(network)
    engine(network, clip_batches()).run()
    assert not changed(network.classifier, before.classifier) and changed(network.features, before.features)


def test_it_counts_the_frames_that_it_processed():
    trainer = engine(build(), clip_batches(batches=3, clips=2, size=5), epochs=2)
    trainer.run()
    assert trainer.samples == 3 * 2 * 5 * 2
    trainer.run()
    assert trainer.samples == 60, "of the last run alone"


@pytest.mark.parametrize("silent", [{"cycle_weight": 0.0}, {"rate": 0.0}])
def test_a_silent_site_changes_nothing_but_a_counter(silent):
    """λ_t = 0 without weight decay, or no rate, and BatchNorm's statistics left alone; or not."""
    network, other = build(), build()
    engine(network, clip_batches(), statistics_momentum=0.0, **silent).run()
    assert changed(network, build()) == ["features.1.num_batches_tracked"]
    engine(other, clip_batches(), **silent).run()
    assert not torch.equal(other.features[1].running_mean, network.features[1].running_mean)


def moved(network, batches, weight, rate, optimizer):
    """Return the L2 norm of all changes of the parameters in a training."""
    before = copy.deepcopy(network).features
    engine(network, batches, rate, epochs=3, cycle_weight=weight, optimizer=optimizer).run()
    pairs = zip(network.features.parameters(), before.parameters(), strict=True)
    return sum(float((new - old).detach().square().sum()) for new, old in pairs) ** 0.5


def test_its_weight_changes_nothing_under_adam_and_much_under_sgd():
    """Adam divides the scale of its gradients away; a site without labels has no other loss to be weighed against."""
    adam = [moved(build(), clip_batches(), weight, 1e-3, torch.optim.Adam) for weight in (0.1, 10.0, 1000.0)]
    assert adam[0] > 0 and adam == pytest.approx([adam[1]] * 3, rel=0.03), adam
    small, large = (moved(build(), clip_batches(), weight, 1e-7, torch.optim.SGD) for weight in (0.1, 1000.0))
    assert large > 100 * small > 0


def test_it_learns_to_bring_frames_back():
    network = build(norm=False)
    result = outputs_of(engine(network, clip_batches(batches=4), epochs=30))
    first, last = ([float(output["cycle_error"]) for output in part] for part in (result[:4], result[-4:]))
    assert sum(last) < 0.5 * sum(first)
    assert min(float(o["cycle_back"]) for o in result[-4:]) >= 0.9


def test_gradients_are_clipped(monkeypatch):
    norms = []
    plain = nn.utils.clip_grad_norm_
    monkeypatch.setattr(nn.utils, "clip_grad_norm_", lambda p, n: norms.append(n) or plain(p, n))
    engine(build(), clip_batches()).run()
    assert norms == []
    engine(build(), clip_batches(), max_grad_norm=0.5).run()
    assert norms == [0.5] * 3


def test_half_precision_features_give_a_loss_in_single_precision():
    """On a GPU autocast gives float16; here a network that does, and softmax of ±20 must not suffer."""
    network = build()
    plain = network.features

    class Half(nn.Module):
        def forward(self, x):
            return plain(x).half()

    network.features = Half()
    network.features.add_module("plain", plain)
    seen = []

    class Noted(CycleConsistencyLoss):
        def __call__(self, clips, times=None):
            seen.append(clips.dtype)
            return super().__call__(clips, times)

    result = outputs_of(engine(network, clip_batches(), cycle_loss=Noted()))
    assert seen == [torch.float32] * 3 and all(torch.isfinite(o["loss"]) for o in result)


def test_the_time_of_frames_reaches_the_loss():
    """Uneven times: another loss than with places."""
    batches = clip_batches()
    for batch in batches:
        batch["part"] = batch["part"] ** 3
    values = [
        float(outputs_of(engine(build(), batches, cycle_loss=CycleConsistencyLoss(index=index)))[0]["cycle_error"])
        for index in ("position", "frame_time")
    ]
    assert abs(values[0] - values[1]) > 1e-3


def test_one_draw_a_clip_and_views_on_the_device():
    images, labels = ClipBatches(ClipViews(seed=0))(clip_batches()[0])
    assert images.shape == (10, 3, 12, 12) and images.dtype == torch.float32 and labels is None
    assert float(images.min()) >= 0 and float(images.max()) <= 1


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"cycle_weight": -1.0}, "cycle_weight is -1"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0"),
        ({"statistics_momentum": 1.5}, "statistics_momentum is 1.5"),
    ],
)
def test_what_cannot_be_meant(said, message):
    with pytest.raises(FedMedError, match=message):
        engine(build(), clip_batches(), **said)


def test_a_single_clip_is_refused_and_no_videos_too():
    with pytest.raises(FedMedError, match="at least 2 clips"):
        engine(build(), clip_batches(clips=1)).run()
    with pytest.raises(DataError, match="no images to train on"):
        engine(build(), None)
