import numpy as np

from fedmed_demo.surgery.texture import Plane, tubes

GRID = Plane((24, 32), 24.0)


def test_tubes_are_deepest_on_their_axis():
    depth = tubes(GRID, (np.array([[-0.5, 0.0], [0.5, 0.0]]),), 0.2)
    rows = depth[:, 16]
    assert rows.max() == 1 and abs(int(rows.argmax()) - 12) <= 1 and rows[0] < 0 and rows[-1] < 0


def test_tubes_out_of_sight_are_infinitely_far_and_nobody_is_warned(recwarn):
    assert np.isneginf(tubes(GRID, (np.array([[40.0, 40.0], [41.0, 40.0]]),), 0.01)).all()
    assert not list(recwarn)
