"""Batches of clips, as engines get them."""

import pytest
import torch

from fedmed.data.augment.clip_views import ClipViews
from fedmed.errors import FedMedError
from fedmed.training.video_frames import FrameBatches, StackedFrames


def clips(frames, height=6, width=8):
    drawn = torch.Generator().manual_seed(frames)
    return torch.randint(0, 256, (2, frames, 3, height, width), generator=drawn, dtype=torch.uint8)


def test_the_frames_of_a_clip_become_channels_oldest_first():
    image = clips(4)
    result, labels = StackedFrames()({"image": image})
    assert labels is None and result.shape == (2, 12, 6, 8) and result.dtype == torch.float32
    for frame in range(4):
        assert torch.equal(result[:, 3 * frame : 3 * frame + 3], image[:, frame] / 255)


def test_a_clip_of_one_frame_is_what_a_network_of_single_frames_gets():
    batch = {"image": clips(1), "labels": torch.randint(0, 4, (2, 1, 6, 8))}
    for stacked, single in zip(StackedFrames()(batch), FrameBatches()(batch), strict=True):
        assert torch.equal(stacked, single)
    with pytest.raises(FedMedError, match="clips of one frame are needed"):
        FrameBatches()({"image": clips(2)})
    with pytest.raises(FedMedError, match="are needed"):
        StackedFrames()({"image": clips(1)[:, 0]})


def test_the_label_is_that_of_the_last_frame():
    phases, tools = torch.tensor([[0, 1, 2], [3, 4, 5]]), torch.eye(3, dtype=torch.uint8).expand(2, 3, 3)
    assert StackedFrames()({"image": clips(3), "labels": phases})[1].tolist() == [2, 5]
    last = StackedFrames()({"image": clips(3), "labels": tools})[1]
    assert last.dtype == torch.float32 and last.tolist() == [[0, 0, 1], [0, 0, 1]]


def test_the_mask_moves_with_all_frames_of_its_clip():
    """A marked square, bright in each frame: after a turn, mask and brightness still agree, in each frame alike."""
    image, mask = torch.zeros(2, 4, 3, 32, 40), torch.zeros(2, 1, 32, 40, dtype=torch.int64)
    image[..., 8:16, 20:32], mask[..., 8:16, 20:32] = 1, 2
    views = ClipViews(3, flip=0, shift=0, zoom=0.2, degrees=30, brightness=0, contrast=0, saturation=0, hue=0)
    result, labels = StackedFrames(views)({"image": image, "labels": mask})
    assert labels.shape == (2, 32, 40) and set(labels.unique().tolist()) == {0, 2}
    frames = result.unflatten(1, (4, 3))
    assert torch.equal(frames[:, 0], frames[:, 3])
    assert ((frames[:, 3, 0] > 0.5) == (labels == 2)).float().mean() > 0.98
    assert not torch.equal(labels[0], labels[1]), "each clip has draws of its own"
