"""Frames of synthetic operations: the truth fits the picture, and the same seed gives the same frames."""

from itertools import islice

import numpy as np
import pytest
from scipy import ndimage

from fedmed.data.operation_names import TOOLS
from fedmed.data.video.frame_settings import dark_sides
from fedmed_demo.federation import LAP_TOOLS
from fedmed_demo.surgery.drawing import Drawing
from fedmed_demo.surgery.instruments import parts
from fedmed_demo.surgery.motion import Pose
from fedmed_demo.surgery.profile import Instruments
from fedmed_demo.surgery.recording import SEEN, DrawnRecording, Room
from fedmed_demo.surgery.texture import Plane, tubes
from fedmed_demo.surgery.working_ends import JAW, SHAFT, WRIST, Style

HOSPITAL = LAP_TOOLS["lap_cho2"].tiny()
CALM = {"noise": 0.0, "border": (2.0, 2.0), "blur": 0.0}


def calm(hospital, **optics):
    """The hospital with a camera without noise or border."""
    return hospital.model_copy(update={"optics": hospital.optics.model_copy(update={**CALM, **optics})})


def test_same_seed_same_frames_whatever_was_made_before():
    first = [frame.image for frame in islice(DrawnRecording(HOSPITAL, "a"), 8)]
    next(iter(DrawnRecording(HOSPITAL, "b")))
    again = [frame.image for frame in islice(DrawnRecording(HOSPITAL, "a"), 8)]
    assert all(np.array_equal(one, two) for one, two in zip(first, again, strict=True))
    for other in (DrawnRecording(HOSPITAL, "b"), DrawnRecording(HOSPITAL, "a", seed=1)):
        assert not np.array_equal(first[0], next(iter(other)).image)
    assert first[0].shape == (48, 64, 3) and first[0].dtype == np.uint8
    assert not np.array_equal(first[0], first[1])  # breath and camera move


@pytest.mark.parametrize("site", LAP_TOOLS)
def test_truth_of_every_frame_is_of_one_piece(site):
    hospital = LAP_TOOLS[site].tiny()
    recording = DrawnRecording(hospital, "p")
    frames = list(recording)
    assert len(frames) == len(recording) == recording.operation.seconds * hospital.rate
    used = set()
    for frame in frames:
        assert frame.mask.shape == frame.owner.shape == frame.image.shape[:2]
        assert np.array_equal(frame.mask > 0, frame.owner > 0) and frame.mask.max() <= 3
        for number, present in enumerate(frame.present, 1):
            share = (frame.owner == number).mean()
            assert share >= 0.5 * SEEN if present else share < SEEN + 1e-6
        in_use = {TOOLS.index(use.tool) for use in recording.operation.uses if use.start <= frame.time <= use.end}
        assert {n for n, present in enumerate(frame.present) if present} <= in_use
        used |= in_use
        if frame.time < recording.operation.inside:
            assert not frame.mask.any()
    assert len(used) == len(TOOLS)


def test_a_mask_lies_on_its_instrument():
    """The same body, camera and hands without instruments differ where the mask is, and little elsewhere."""
    hospital = calm(HOSPITAL.model_copy(update={"size": (128, 96)}))
    hospital = hospital.model_copy(update={"course": hospital.course.model_copy(update={"outside": 0.0, "smoke": 0.0})})
    recording = DrawnRecording(hospital, "p")
    use = next(use for use in recording.operation.uses if use.tool == "grasper")
    time = (use.start + use.end) / 2
    with_tools, without = Room(recording), Room(recording)
    without._poses = lambda *_: []
    shown, bare = with_tools.frame(0, time), without.frame(0, time)
    far = np.abs(shown.image.astype(int) - bare.image).max(axis=-1)
    assert shown.mask.any() and not bare.mask.any()
    assert np.median(far[shown.mask > 0]) > 12 > np.median(far[shown.mask == 0])


@pytest.mark.parametrize("tool", TOOLS)
def test_every_tool_has_a_shaft_outside_and_a_working_end_at_its_tip(tool):
    grid = Plane((96, 128), 96.0)
    image, height = np.full((96, 128, 3), 90, np.float32), np.zeros((96, 128), np.float32)
    drawing = Drawing(image, height, grid, np.zeros((96, 128), np.float32))
    pose = Pose(tool, np.array((0.1, 0.0)), 0.0, 0.0, 0.5, 0.1, 0.3, np.zeros(2))
    drawing.add(parts(pose, Style(1, Instruments(), tool)), 4, pose.near, 1.0)
    columns = {value: np.nonzero(drawing.mask == value)[1] for value in (SHAFT, JAW)}
    if tool != "specimen_bag":  # whose sheet is larger than all else
        assert columns[SHAFT].min() == 0 and columns[SHAFT].max() < columns[JAW].max()
    assert 68 <= columns[JAW].max() <= 76  # the tip is at column 73
    assert set(np.unique(drawing.owner)) == {0, 4}


@pytest.mark.parametrize("bend", [-1.1, 0.0, 1.1])
def test_shaft_wrist_and_jaws_hang_together_however_the_wrist_bends(bend):
    pose = Pose("grasper", np.array((0.1, 0.1)), 0.3, bend, 0.2, 0.1, 0.3, np.zeros(2))
    grid = Plane((192, 256), 192.0)
    flat = np.zeros(grid.shape, np.float32)
    drawing = Drawing(np.zeros((*grid.shape, 3), np.float32), flat, grid, flat)
    drawing.add(parts(pose, Style(1, Instruments(), "grasper")), 1, pose.near, 1.0)
    assert ndimage.label(drawing.mask > 0)[1] == 1 and set(np.unique(drawing.mask)) == {0, 1, 2, 3}
    touching = ndimage.binary_dilation(drawing.mask == SHAFT, iterations=2) & (drawing.mask > SHAFT)
    assert set(np.unique(drawing.mask[touching])) == {WRIST}


def test_higher_tissue_hides_the_tip_and_its_mask():
    grid = Plane((96, 128), 96.0)
    flat = np.zeros((96, 128), np.float32)
    wall = flat.copy()
    wall[:, 64:] = 2.0
    pose = Pose("grasper", np.array((0.2, 0.0)), 0.0, 0.0, 0.3, 0.1, 0.3, np.zeros(2))
    masks = []
    for height in (flat, wall):
        drawing = Drawing(np.zeros((96, 128, 3), np.float32), height, grid, flat)
        drawing.add(parts(pose, Style(1, Instruments(), "grasper")), 1, pose.near, 1.0)
        masks.append(drawing.mask)
    assert (masks[0][:, 64:] == JAW).any() and not (masks[1][:, 66:] == JAW).any()
    assert np.array_equal(masks[0][:, :40], masks[1][:, :40])


@pytest.mark.parametrize("site", LAP_TOOLS)
def test_black_borders_are_as_wide_as_the_profile_says(site):
    hospital = LAP_TOOLS[site].tiny().model_copy(update={"size": (128, 96)})
    recording = DrawnRecording(hospital, "p")
    frame = Room(recording).frame(0, recording.operation.inside + 1)
    x, y = Plane((96, 128), 96.0).axes
    radius = np.hypot(x, y) / np.hypot(*(0.5, 0.5 * 128 / 96))
    low, high = hospital.optics.border
    dark, light = radius > high + 0.06, radius < low - 0.06
    if hospital.optics.text:
        dark[:] = False
    assert not frame.mask[dark].any() and (frame.image[dark].size == 0 or frame.image[dark].max() < 12)
    assert (frame.image[light].max(axis=-1) > 12).mean() > 0.9


def test_black_edges_left_and_right_are_large_intermediate_or_small_by_client():
    """As ``fedmed prepare video --split-by black-edge`` measures them: each client's own, of every patient."""
    widths = {}
    for site, hospital in LAP_TOOLS.items():
        small = hospital.tiny().model_copy(update={"size": (256, 192)})
        recordings = [
            DrawnRecording(small, f"p{number}") for number in range(2 if hospital.optics.border[0] < 0.9 else 1)
        ]
        frames = [Room(one).frame(0, one.operation.inside + 1).image for one in recordings]
        widths[site] = dark_sides(np.stack(frames))
    large, intermediate, few = (widths[f"lap_cho{number}"] for number in (1, 2, 3))
    assert large.min() > 0.08 and large.max() < 0.2
    assert intermediate.min() > 0.04 and intermediate.max() < 0.08
    assert few.min() > 0 and few.max() < 0.035
    assert not widths["lap_hei1"].any() and not widths["lap_hei2"].any()


def test_two_hospitals_show_the_same_tissue_in_other_colours():
    warm, cold = (calm(HOSPITAL, gain=gain) for gain in ((1.2, 1.0, 0.8), (0.8, 1.0, 1.2)))
    ratio = [
        np.divide(*Room(DrawnRecording(one, "p")).frame(0, 6.0).image.mean((0, 1))[[0, 2]]) for one in (warm, cold)
    ]
    assert ratio[0] > 1.5 * ratio[1]


def test_tools_are_seen_about_as_often_as_the_profile_says():
    hospital = LAP_TOOLS["lap_cho1"].model_copy(update={"size": (64, 48)})
    present = []
    for number in range(6):
        recording = DrawnRecording(hospital, f"p{number}")
        room = Room(recording)
        present += [room.frame(second, second).present for second in range(0, int(recording.operation.seconds), 2)]
    for tool, share in zip(TOOLS, np.mean(present, axis=0), strict=True):
        assert share == pytest.approx(hospital.course.tools[tool], abs=0.04, rel=0.3)


def test_tubes_are_deepest_on_their_axis():
    depth = tubes(Plane((24, 32), 24.0), (np.array([[-0.5, 0.0], [0.5, 0.0]]),), 0.2)
    rows = depth[:, 16]
    assert rows.max() == 1 and abs(int(rows.argmax()) - 12) <= 1 and rows[0] < 0 and rows[-1] < 0


def test_tubes_out_of_sight_are_infinitely_far_and_nobody_is_warned(recwarn):
    assert np.isneginf(tubes(Plane((24, 32), 24.0), (np.array([[40.0, 40.0], [41.0, 40.0]]),), 0.01)).all()
    assert not list(recwarn)
