import pytest
import torch

from fedmed.data.augment.clip_views import ClipViews
from fedmed.errors import FedMedError

STILL = {"flip": 0, "zoom": 0, "shift": 0, "degrees": 0, "brightness": 0, "contrast": 0, "saturation": 0, "hue": 0}


@pytest.fixture
def clips():
    """(3, 4, 3, 20, 28) clips of four equal frames."""
    frames = torch.rand(3, 1, 3, 20, 28, generator=torch.Generator().manual_seed(0))
    return frames.expand(3, 4, 3, 20, 28).contiguous()


def test_all_frames_of_a_clip_get_the_same_view_and_clips_others(clips):
    clips[1:] = clips[0]
    views = ClipViews(0, crop=0.6)(clips)
    assert views.shape == clips.shape and views.min() >= 0 and views.max() <= 1
    assert torch.equal(views[:, :1].expand_as(views), views)
    assert not torch.allclose(views[0], views[1]) and not torch.allclose(views[0], clips[0])


def test_without_changes_clips_stay_as_they_are(clips):
    assert torch.equal(ClipViews(0, **STILL)(clips), clips)
    assert torch.allclose(ClipViews(0, **STILL | {"zoom": 1e-9})(clips), clips, atol=1e-5), "by interpolation nearly"
    bytes_ = (clips * 255).round().to(torch.uint8)
    assert torch.equal(ClipViews(0, **STILL)(bytes_), bytes_.float() / 255)


def test_mirror_images(clips):
    assert torch.allclose(ClipViews(0, **STILL | {"flip": 1})(clips), clips.flip(-1), atol=1e-4)
    assert torch.allclose(ClipViews(0, **STILL | {"flip_vertical": 1})(clips), clips.flip(-2), atol=1e-4)


@pytest.mark.parametrize("change", [{"degrees": 40}, {"shift": 0.3}, {"zoom": 0.3}, {"crop": 0.3}, {"flip": 0.5}])
def test_masks_move_with_their_frames(change):
    masks = torch.zeros(8, 1, 40, 40, dtype=torch.uint8)
    masks[:, :, 5:18, 8:30] = 3
    clips = (masks == 3).float()[:, :, None].expand(8, 2, 3, 40, 40)
    views, moved = ClipViews(1, **STILL | change)(clips, masks)
    assert moved.dtype == torch.uint8 and set(moved.unique().tolist()) == {0, 3} and moved.shape == masks.shape
    assert ((views[:, :1, 0] > 0.5) == (moved == 3)).float().mean() > 0.97
    assert not torch.equal(moved, masks)


def test_colours():
    grey = torch.full((4, 2, 3, 6, 6), 0.5)
    assert torch.allclose(ClipViews(0, **STILL | {"saturation": 1, "hue": 180})(grey), grey, atol=1e-3)
    assert torch.allclose(ClipViews(0, **STILL | {"contrast": 1})(grey), grey, atol=1e-5)
    brighter = ClipViews(0, **STILL | {"brightness": 0.2})(grey)
    assert (brighter - grey).abs().max() <= 0.2 and len(brighter[:, 0, 0, 0, 0].unique()) == 4
    red = torch.tensor([0.8, 0.2, 0.2]).view(1, 1, 3, 1, 1).expand(4, 2, 3, 6, 6)
    weights = torch.tensor([0.299, 0.587, 0.114])
    turned = ClipViews(0, **STILL | {"hue": 10, "saturation": 0.2})(red)
    assert not torch.allclose(turned, red, atol=0.01)
    assert torch.allclose(torch.einsum("c,bkchw->bkhw", weights, turned), torch.tensor(0.3794), atol=2e-3)


@pytest.mark.parametrize("values", [{"flip": 2}, {"crop": 0}, {"zoom": 1}, {"hue": 200}, {"shift": -0.1}])
def test_wrong_values(values):
    with pytest.raises(FedMedError, match=f"ClipViews: .*{next(iter(values))}"):
        ClipViews(**values)


def test_wrong_shapes(clips):
    with pytest.raises(FedMedError, match=r"give \(B, k, 3, H, W\)"):
        ClipViews()(clips[:, 0])
    with pytest.raises(FedMedError, match=r"give \(B, n, H, W\) of the batch"):
        ClipViews()(clips, torch.zeros(3, 1, 9, 9))
