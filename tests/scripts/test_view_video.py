"""fedmed view video on tiny synthetic operations."""

import csv
import json

import av
import numpy as np
import pytest
import yaml
from PIL import Image, ImageColor

from fedmed.data.datalist import case_names
from fedmed.reports.palette import MARKS, PREDICTION, TRUTH
from fedmed.training.mask_recorder import SCORES
from fedmed.training.video_recorder import frames_file
from fedmed_demo import demo_site
from tests.commands import fedmed

FRAMES = ["--frames", "4", "--dpi", "50"]


@pytest.fixture(scope="module")
def script():
    return fedmed("view", "video")


@pytest.fixture
def site(fedmed_home, tmp_path):
    """The YAML of a site with videos, and its folder."""
    path = tmp_path / "lap_hei2.yaml"
    path.write_text(yaml.safe_dump({"demo": "lap_tools_tiny", "device": "cpu"}))
    return path, demo_site("lap_tools_tiny", "lap_hei2", fedmed_home)


@pytest.fixture
def run(site, tmp_path):
    """A run that called a grasper in every frame of the first video of 'testing'."""
    _, root = site
    (entry,) = json.loads((root / "datalist.json").read_text())["testing"]
    folder = tmp_path / "run" / "lap_hei2" / "simulate_job" / "fedmed" / "evaluation"
    seconds = [row["second"] for row in csv.DictReader((root / entry["labels"]).open())]
    path = frames_file(folder, 0, entry["patient"])
    path.parent.mkdir(parents=True)
    path.write_text("\n".join(["second,true_grasper,p_grasper,p_clipper", *(f"{s},0,0.9,0.1" for s in seconds)]))
    return tmp_path / "run"


def pixels(picture, colour):
    """Number of pixels of a colour, or nearly so."""
    return int((np.abs(np.asarray(picture.convert("RGB"), dtype=int) - ImageColor.getrgb(colour)) < 12).all(-1).sum())


def test_a_sheet_and_a_film_of_a_sites_video(script, site, run, tmp_path, capsys):
    path, root = site
    out, film = tmp_path / "new" / "sheet.png", tmp_path / "new" / "film.mp4"
    line = ["0", "--site", str(path), "--run", str(run), "--out", str(out), *FRAMES]
    assert script([*line, "--video", str(film), "--rate", "1"]) == 0
    said = capsys.readouterr()
    assert said.out.split() == [str(out), str(film)] and not said.err.strip()
    sheet = Image.open(out)
    assert min(sheet.size) > 200 and min(pixels(sheet, TRUTH), pixels(sheet, PREDICTION)) > 500
    with av.open(str(film)) as container:
        frames = [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]
        assert abs(len(frames) - container.duration / av.time_base) < 1.5
    assert frames[0].shape[1] == 640 and frames[0].shape[0] > 480
    lines = [int(np.argmax(frame[-40:].astype(int).min(axis=2).mean(axis=0))) for frame in frames]
    assert np.all(np.diff(lines) > 0) and lines[-1] > 600  # the line of the present moves on
    (entry,) = json.loads((root / "datalist.json").read_text())["testing"]
    for name in (entry["patient"], str(root / entry["video"])):
        assert script([name, *line[1:]]) == 0


def test_called_masks_are_filled_and_true_ones_outlined(script, site, tmp_path):
    _, root = site
    (entry,) = json.loads((root / "datalist.json").read_text())["testing"]
    (tmp_path / "called").mkdir()
    for path in (root / entry["masks"]).iterdir():
        with Image.open(path) as mask:
            Image.fromarray(np.full(np.array(mask).shape, 2, np.uint8)).save(tmp_path / "called" / path.name)
    files = [str(root / entry["video"]), *FRAMES]
    film = ["--video", str(tmp_path / "both.mp4"), "--rate", "1"]
    for name, more in (("true", []), ("both", ["--called", str(tmp_path / "called"), *film])):
        line = [*files, "--masks", str(root / entry["masks"]), *more, "--out", str(tmp_path / f"{name}.png")]
        assert script(line) == 0
    yellow = np.array(ImageColor.getrgb(MARKS[1]), int)
    true, both = (np.asarray(Image.open(tmp_path / f"{name}.png").convert("RGB"), int) for name in ("true", "both"))
    nearer = np.abs(both - yellow).sum(-1) < np.abs(true - yellow).sum(-1) - 30
    assert nearer.mean() > 0.2, "all of a called frame is under the colour of its value"


def test_masks_are_outlined(script, site, tmp_path):
    _, root = site
    entry = json.loads((root / "datalist.json").read_text())["training"][0]
    plain, outlined = tmp_path / "plain.png", tmp_path / "outlined.png"
    files = [str(root / entry["video"]), "--labels", str(root / entry["labels"]), *FRAMES]
    assert script([*files, "--out", str(plain)]) == 0
    assert script([*files, "--masks", str(root / entry["masks"]), "--out", str(outlined)]) == 0
    counts = [[pixels(Image.open(path), colour) for colour in MARKS[1:3]] for path in (plain, outlined)]
    assert sum(counts[1]) > sum(counts[0]) + 20
    first = sorted((root / entry["masks"]).iterdir())[0]
    (tmp_path / "masks").mkdir()
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "masks" / first.name)
    assert script([*files, "--masks", str(tmp_path / "masks"), "--out", str(plain)]) == 2


def test_values_of_masks_have_the_names_that_are_given(script, site, tmp_path, monkeypatch):
    _, root = site
    entry = json.loads((root / "datalist.json").read_text())["training"][0]
    shown = []
    monkeypatch.setattr("fedmed.reports.palette.save_picture", lambda figure, *_: shown.append(figure))
    line = [str(root / entry["video"]), "--masks", str(root / entry["masks"]), "--out", str(tmp_path / "a.png")]
    for more in ([], ["--classes", "shaft,wrist"]):
        assert script([*line, "--frames", "12", "--dpi", "50", *more]) == 0
    plain, named = ({text.get_text() for text in figure.texts} for figure in shown)
    assert {"mask 1", "mask 2", "mask 3"} <= plain and not plain & {"shaft", "wrist"}
    assert {"shaft", "wrist", "mask 3"} <= named and "mask 1" not in named


def test_single_frames_count_in_their_own_time_and_may_differ_in_size(script, site, tmp_path, capsys):
    for number in range(3):
        Image.fromarray(np.full((48 + number, 64, 3), 60 * number, np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "frames.csv").write_text("file,second\n0.png,100\n1.png,101\n2.png,102\n")
    (tmp_path / "labels.csv").write_text("second,phase\n100,first\n101,second\n102,second\n")
    labels = ["--labels", str(tmp_path / "labels.csv")]
    film = ["--video", str(tmp_path / "film.mp4"), "--rate", "1"]
    assert script([str(tmp_path), *labels, "--out", str(tmp_path / "sheet.png"), *FRAMES, *film]) == 0
    assert not capsys.readouterr().err.strip()
    with av.open(str(tmp_path / "film.mp4")) as container:  # all of one size, though the pictures are not
        greys = [frame.to_ndarray(format="rgb24")[300, 300].mean() for frame in container.decode(video=0)]
    assert greys == pytest.approx([0, 60, 120], abs=4)
    blue = (np.abs(np.asarray(Image.open(tmp_path / "sheet.png"), int) - ImageColor.getrgb(TRUTH)) < 12).all(-1)
    assert 0.2 < blue.any(axis=0).mean() < 1 and blue.sum() > 500  # the bars lie within the sheet


def test_mistakes_are_said_in_one_line(script, site, run, tmp_path, capsys):
    path, root = site
    of_site = ["--site", str(path)]
    video = root / "videos" / "LHB-001.mp4"
    (tmp_path / "cut.mp4").write_bytes(video.read_bytes()[:-2000])
    (tmp_path / "odd.csv").write_text("second,p_grasper\n0,1.5\n")
    (tmp_path / "none.csv").write_text("second\n0\n")
    for arguments, message in (
        (["7", *of_site], "the video '7' is unknown; use 0; a place is one in 'testing'"),
        (["LHB-01", *of_site], "(did you mean 'LHB-001'?)"),
        (["0", *of_site, "--list", "unlabeled"], "the list 'unlabeled' is missing"),
        (["0", *of_site, "--list", "training", "--run", str(run)], "did not test LHB-001.mp4 of 'training'"),
        (["0", *of_site, "--run", str(tmp_path)], "no test of videos of lap_hei2"),
        ([str(video), "--run", str(run)], "--run needs --site"),
        ([str(root / "none.mp4")], "none.mp4: the video cannot be read"),
        ([str(tmp_path / "cut.mp4")], "cut.mp4: cannot be opened as a video"),
        ([str(video), "--labels", str(tmp_path / "no.csv")], "no.csv: the table of labels cannot be read"),
        ([str(video), "--predictions", str(tmp_path / "no.csv")], "there is no such table of predictions"),
        ([str(video), "--predictions", str(tmp_path / "odd.csv")], "odd.csv: line 2: write seconds in order"),
        ([str(video), "--predictions", str(tmp_path / "none.csv")], "such as p_grasper; it has second"),
    ):
        assert script([*arguments, "--out", str(tmp_path / "sheet.png")]) == 2
        assert message in capsys.readouterr().err, arguments
    assert not (tmp_path / "sheet.png").exists()


def test_a_run_that_scored_masks_says_where_called_masks_come_from(script, fedmed_home, tmp_path, capsys):
    yaml_file, root = tmp_path / "inst_hyst.yaml", demo_site("lap_instruments_tiny", "inst_hyst", fedmed_home)
    yaml_file.write_text(yaml.safe_dump({"demo": "lap_instruments_tiny", "device": "cpu"}))
    entry = json.loads((root / "datalist.json").read_text())["testing"][0]
    table = frames_file(tmp_path / "run/inst_hyst/simulate_job/fedmed/evaluation", 0, case_names([entry])[0])
    table.parent.mkdir(parents=True)
    table.write_text(",".join(["second", *SCORES, "dice_shaft"]) + "\n0.0,0.5,0.4,3,2,0.5\n")
    line = ["0", "--site", str(yaml_file), "--out", str(tmp_path / "sheet.png"), *FRAMES]
    assert script([*line, "--run", str(tmp_path / "run")]) == 2
    said, video = capsys.readouterr().err, root / entry["video"]
    assert said.count("\n") == 1 and str(table) in said and "p_grasper" not in said
    for needed in (f"--called OUT/masks/{video.name}", "fedmed export RUN", f"--dataset_dir {video} "):
        assert needed in said
    called = tmp_path / "OUT/masks" / video.name
    called.mkdir(parents=True)
    for path in (root / entry["masks"]).iterdir():
        (called / path.name).write_bytes(path.read_bytes())
    assert script([*line, "--called", str(called)]) == 0 and (tmp_path / "sheet.png").is_file()


def test_a_video_of_which_nothing_is_known_is_shown(script, site, tmp_path, capsys):
    _, root = site
    assert script([str(root / "videos/LHB-001.mp4"), "--out", str(tmp_path / "sheet.png"), *FRAMES]) == 0
    assert "nothing is known of" in capsys.readouterr().err and (tmp_path / "sheet.png").is_file()
