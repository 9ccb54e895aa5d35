"""Courses of synthetic operations: order and duration of phases, and how often each tool is used."""

from itertools import pairwise

import numpy as np
import pytest

from fedmed.data.operation_names import PHASES, TOOLS
from fedmed.errors import DataError
from fedmed_demo.federation import LAP_TOOLS
from fedmed_demo.surgery.operation import WORK, draw_operation, draw_order
from fedmed_demo.surgery.profile import FOLDER, Course, read_profiles


def operations(course, count=40, **options):
    return [draw_operation(np.random.default_rng(seed), course, **options) for seed in range(count)]


def test_phases_follow_the_workflow():
    """Retrograde 0, 1, 2, 3, then 4 and 5; fundus first 2 also after 3; 5 never before 3; 0 may be missing."""
    rng = np.random.default_rng(0)
    course = Course(fundus_first=0.3, no_preparation=0.3, cleaning_first=0.3, cleaning_twice=0.3)
    orders = {tuple(draw_order(rng, course)) for _ in range(400)}
    for order in orders:
        ends = order[order.index(3) + 1 :]
        assert order[: order.index(3)] in ((0, 1, 2), (1, 2))
        assert ends[ends[0] == 2 :] in ((4, 5), (5, 4), (5, 4, 5))
    assert len(orders) == 2 * 2 * 3


def test_the_clients_of_lap_tools_differ_as_those_of_the_thesis():
    hei1, hei2, *cho = (LAP_TOOLS[f"lap_{name}"] for name in ("hei1", "hei2", "cho1", "cho2", "cho3"))
    assert [sum(one.counts.values()) / 6 for one in (hei1, hei2, *cho)] == [1, 1, 2, 4, 2]
    borders = [border for one in cho for border in one.optics.border]
    assert borders == sorted(borders) and borders[-1] < 0.8 < 1 < hei1.optics.border[0]  # large to small, and none
    assert [one.optics.gain == (1, 1, 1) for one in (hei1, hei2, *cho)] == [False, False, True, True, True]
    assert hei1.optics.zoom != hei2.optics.zoom and hei2.optics.blur != cho[0].optics.blur
    assert {one.lists["testing"].without for one in (hei1, *cho)} == {()}
    assert hei2.lists["testing"].without == ("suction_irrigation",)
    frequencies = {"grasper": 0.6, "coagulation": 0.5, "suction_irrigation": 0.12, "specimen_bag": 0.06}
    assert cho[0].course.tools == frequencies | {"clipper": 0.05, "scissors": 0.04}


@pytest.mark.parametrize("site", LAP_TOOLS)
def test_phases_fill_the_time_and_tools_belong_to_them(site):
    course = LAP_TOOLS[site].course
    for operation in operations(course, 10):
        starts, ends = [start for _, start, _ in operation.phases], [end for _, _, end in operation.phases]
        assert starts[0] == 0 and ends[-1] == operation.seconds and starts[1:] == ends[:-1]
        assert course.seconds[0] <= operation.seconds <= course.seconds[1] and min(np.subtract(ends, starts)) >= 2
        for use in operation.uses:
            assert operation.inside <= use.start < use.end <= operation.seconds + 1e-6
            assert WORK[use.tool][operation.phase_at((use.start + use.end) / 2)] > 0
        for hand in range(3):
            local = sorted((use.start, use.end) for use in operation.uses if use.hand == hand)
            assert all(first[1] <= second[0] + 1e-6 for first, second in pairwise(local))


@pytest.mark.parametrize("site", LAP_TOOLS)
def test_tools_are_in_use_about_as_often_as_the_profile_says(site):
    course = LAP_TOOLS[site].course
    seen, total = dict.fromkeys(TOOLS, 0), 0
    for operation in operations(course):
        times = np.arange(0, operation.seconds, 0.5)
        total += len(times)
        for tool in TOOLS:
            uses = [use for use in operation.uses if use.tool == tool]
            seen[tool] += sum(any(use.start <= time < use.end for use in uses) for time in times)
    for tool, share in course.tools.items():
        assert seen[tool] / total == pytest.approx(share, abs=0.04, rel=0.25)


def test_a_tool_can_be_left_out():
    for operation in operations(LAP_TOOLS["lap_hei2"].course, 5, without=("suction_irrigation",)):
        assert "suction_irrigation" not in {use.tool for use in operation.uses}


def test_progress_grows_over_both_parts_of_a_phase():
    operation = next(o for o in operations(Course(fundus_first=1.0), 3))
    values = [operation.progress(2, time) for time in np.arange(0, operation.seconds, 0.5)]
    assert values[0] == 0 and operation.progress(2, operation.seconds) == 1 and np.all(np.diff(values) >= 0)
    first_end = next(end for phase, _, end in operation.phases if phase == 2)
    assert 0 < operation.progress(2, first_end) < 1 and len(PHASES) == 6


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("hospitals: []", "at least 1 item"),
        ("hospitals: [{name: a, prefix: A, lists: {training: {videos: 1}}, optic: {}}]", "optic"),
        ("hospitals: [{name: a, prefix: A, lists: {t: {videos: 1}}, course: {tools: {drill: 0.1}}}]", "drill"),
        ("hospitals: [{name: a, prefix: A, lists: {t: {videos: 1}}, size: [255, 192]}]", "multiple of 2"),
        ("hospitals: [", "profiles"),
    ],
)
def test_mistakes_in_profiles_are_told(tmp_path, text, reported):
    path = tmp_path / "wrong.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=reported):
        read_profiles(path)
    assert read_profiles(FOLDER / "lap_tools.yaml")


def test_another_federation_needs_yaml_alone(tmp_path):
    """Values of ``shared`` hold for every hospital, mapping by mapping, and a hospital's own come on top."""
    path = tmp_path / "parts.yaml"
    path.write_text(
        "shared: {parts: binary, labels: [], mask_every: 1, anatomy: {gallbladder: false, fat: [0.8, 0.7, 0.5]}}\n"
        "hospitals:\n"
        "  - {name: a, prefix: A, instruments: {bend: 60}, lists: {training: {videos: 2}}}\n"
        "  - {name: b, prefix: B, parts: all, anatomy: {liver: [0.4, 0.2, 0.2]}, lists: {unlabeled: {videos: 2}}}\n"
    )
    first, second = read_profiles(path).values()
    assert (first.parts, second.parts, second.anatomy.gallbladder) == ("binary", "all", False)
    assert second.anatomy.fat == (0.8, 0.7, 0.5) and first.instruments.bend == 60
