"""fedmed view phases on the folder that a site of a real federation has."""

import numpy as np
import pytest
from PIL import Image, ImageColor

from fedmed.reports.palette import PHASES
from tests.commands import fedmed

CLASSES = np.array(["preparation", "clipping"])
FEATURES = {
    "points": np.array([[0, 0], [1, 0], [0, 1], [1, 1]], np.float32),
    "explained": np.array([0.6, 0.3], np.float32),
    "phases": np.array([0, 1, 0, 1], np.int16),
    "videos": np.array([0, 0, 1, 1], np.int32),
    "classes": CLASSES,
    "alignment": np.eye(2, dtype=np.float32),
}
VIDEO = {"times": np.arange(20.0), "truth": np.repeat([0, 1], 10), "called": np.zeros(20, int)}
VIDEO |= {"classes": CLASSES, "f1": 0.33, "case": "LBA-001"}


@pytest.fixture(scope="module")
def script():
    return fedmed("view", "phases")


@pytest.fixture
def job(tmp_path):
    """A site's folder of a job with what its test kept."""
    folder = tmp_path / "kit" / "0c1f" / "fedmed" / "evaluation"
    folder.mkdir(parents=True)
    np.savez(folder / "features.npz", **FEATURES)
    np.savez(folder / "best.npz", **VIDEO)
    return folder.parent.parent


def pixels(path, colour):
    """Number of pixels of a colour."""
    picture = np.asarray(Image.open(path).convert("RGB"), dtype=int)
    return int((np.abs(picture - ImageColor.getrgb(colour)) < 12).all(-1).sum())


@pytest.mark.parametrize("inner", ["", "fedmed", "fedmed/evaluation"])
def test_a_site_draws_what_it_kept(script, job, tmp_path, capsys, inner):
    out = tmp_path / "new" / "pictures"
    assert script([str(job / inner), "--out", str(out), "--title", "Our hospital", "--dpi", "60"]) == 0
    written = [out / "ribbons.png", out / "features.png"]
    assert capsys.readouterr().out.split() == [str(path) for path in written]
    ribbon = [pixels(written[0], colour) for colour in PHASES[:2]]
    assert ribbon[0] > 2 * ribbon[1] > 500, "30 of 40 parts of the two ribbons are of the first phase"
    assert min(Image.open(written[1]).size) > 100
    assert len(list(job.rglob("*"))) == 4, "nothing is written beside what the site kept"


def test_a_site_of_a_simulation_by_its_name(script, job, tmp_path, capsys):
    (tmp_path / "run" / "lap_bay").mkdir(parents=True)
    job.rename(tmp_path / "run" / "lap_bay" / "simulate_job")
    assert script([str(tmp_path / "run"), "--site", "lap_bay", "--out", str(tmp_path), "--dpi", "40"]) == 0
    assert script([str(tmp_path / "run"), "--site", "lap_isle", "--out", str(tmp_path)]) == 2
    assert "no test of a model at" in capsys.readouterr().err


def test_what_is_there_is_drawn_and_mistakes_are_said_in_one_line(script, job, tmp_path, capsys):
    evaluation, arguments = job / "fedmed" / "evaluation", [str(job), "--out", str(tmp_path / "out"), "--dpi", "40"]
    (evaluation / "best.npz").unlink()
    assert script(arguments) == 0 and [path.name for path in (tmp_path / "out").iterdir()] == ["features.png"]
    np.savez(evaluation / "features.npz", **{**FEATURES, "explained": np.zeros(3)})
    for change, words in (
        (lambda: None, "features.npz: points, phases and videos do not fit together"),
        (lambda: (evaluation / "features.npz").unlink(), "neither best.npz nor features.npz"),
        (evaluation.rmdir, "looked for"),
    ):
        change()
        assert script(arguments) == 2
        said = capsys.readouterr().err
        assert words in said and said.count("\n") == 1
    np.savez((evaluation.mkdir(), evaluation / "features.npz")[1], **FEATURES)
    (tmp_path / "file").touch()
    assert script([str(job), "--out", str(tmp_path / "file")]) == 2
    assert "choose another folder with --out" in capsys.readouterr().err
