import numpy as np
import pytest

from fedmed.data.video.frame_settings import RULES, dark_sides, picture_box

TISSUE, DRAPE, BLACK = (170, 70, 60), (70, 120, 150), (5, 5, 8)


def painted(colour, share=1.0, ground=BLACK):
    """A frame whose uppermost ``share`` has a colour."""
    frame = np.full((100, 60, 3), ground, np.uint8)
    frame[: round(share * 100)] = colour
    return frame


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (painted(TISSUE), set()),
        (painted(TISSUE, 0.06), set()),
        (painted(TISSUE, 0.04), {"dark"}),
        (painted((255, 255, 255), 0.51, TISSUE), {"white"}),
        (painted((255, 255, 255), 0.49, TISSUE), set()),
        (painted(DRAPE), {"out_of_body"}),
        (painted(TISSUE, 0.11, DRAPE), set()),
        (painted(TISSUE, 0.09, DRAPE), {"out_of_body"}),
        (painted(BLACK), {"dark"}),
    ],
)
def test_rules(frame, names):
    assert {name for name, rule in RULES.items() if rule(frame)} == names


def test_dark_columns_beside_the_picture():
    frames = np.zeros((3, 40, 50, 3), np.uint8)
    frames[0, :, 10:45] = TISSUE
    frames[1, 10:, :] = TISSUE
    frames[1, :, 0] = 0  # one column
    frames[1, 5, 0] = 255  # 2.5 % of it is no picture
    assert dark_sides(frames) == pytest.approx([15 / 50, 1 / 50, np.nan], nan_ok=True)


def test_the_picture_inside_borders():
    frame = np.zeros((100, 200, 3), np.uint8)
    frame[10:90, 50:150] = TISSUE
    frame[3, 20:24] = 255  # a little text in the border
    assert picture_box([frame, np.zeros_like(frame)]) == (0.1, 0.9, 0.25, 0.75)
    for whole in (np.zeros_like(frame), painted(TISSUE, 0.2), painted(TISSUE)):
        assert picture_box([whole]) == (0.0, 1.0, 0.0, 1.0)
