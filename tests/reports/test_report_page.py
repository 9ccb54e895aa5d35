import io
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from PIL import Image

from fedmed.data.structure import Structure
from fedmed.errors import FedMedError
from fedmed.reports import curves, palette, plots, slice_picture, training_scalars
from fedmed.reports.run import read_run
from fedmed.reports.run_page import page, write_report
from fedmed.reports.run_report import report_of
from fedmed.reports.site_rows import site_rows
from tests.reports.records import change, change_test

VOID = {"meta", "br", "img", "link", "input", "hr"}


class Checker(HTMLParser):
    """Collects ids, references and unclosed elements."""

    def __init__(self) -> None:
        super().__init__()
        self.open, self.ids, self.links = [], [], []

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name == "id":
                self.ids.append(value)
            if name in ("src", "href", "xlink:href"):
                self.links.append(value)

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(html):
    checker = Checker()
    checker.feed(html)
    assert checker.open == []
    return checker


@pytest.fixture(scope="module")
def written(finished_run, tmp_path_factory):
    """A report, written where an earlier one has left a picture of a site that is no more."""
    out = tmp_path_factory.mktemp("report")
    (out / "slices_gone.png").touch()
    return write_report(finished_run, out)


def test_the_page_is_well_formed_and_needs_nothing_else(written):
    html = written.html.read_text()
    checker = checked(html)
    assert len(checker.ids) == len(set(checker.ids))
    for link in checker.links:
        assert link.startswith("data:image/png;base64,") or link[1:] in checker.ids
    assert set(re.findall(r"url\(#([^)]+)\)", html)) <= set(checker.ids)
    assert "<script" not in html and "@import" not in html


def test_pngs_lie_beside_the_page(written):
    names = {path.name for path in written.pngs}
    always = {"updates.png", "curves.png", "aggregation.png", "traffic.png"}
    assert always | {"test_scores.png", "slices_ct_east.png"} <= names
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.parent == written.html.parent for path in written.pngs)


def test_the_page_says_what_it_must(written):
    html = written.html.read_text()
    for words in (
        "The model was selected using labelled sites only: ct_north and ct_south.",
        "Labels of ct_east and ct_west were used for evaluation only.",
        "conv_init.weight: 3 values are not finite",
        "For research. FedMed is not a medical device",
    ):
        assert words in html
    assert html.count('class="slice"') == 12


@pytest.mark.usefixtures("no_charts")
def test_a_real_federation_has_no_pictures_and_the_page_says_why(fake_run):
    html = page(read_run(fake_run(rounds=2, site_folders=False)))
    assert "Pictures and single cases never leave a site" in html and 'class="slice"' not in html


def test_an_interrupted_run_has_a_report_that_says_so(fake_run):
    html = page(read_run(fake_run(rounds=9, done=0)))
    checked(html)
    assert "did not reach its end" in html and "No round was finished." in html


@pytest.mark.usefixtures("no_charts")
def test_text_from_files_is_escaped(fake_run):
    folder = fake_run(rounds=1)
    change(folder, "run", job="<script>alert(1)</script>")
    assert "<script>" not in page(read_run(folder))


def test_the_same_run_of_one_site_gives_the_same_page(fake_run):
    run = read_run(fake_run(rounds=2, sites={"a": "supervised"}))
    with plots.style():
        html = page(run)
        assert page(run) == html
    checked(html)


def test_many_sites(fake_run):
    sites = {f"site_{n}": "supervised" if n % 3 == 0 else "unsupervised" for n in range(12)}
    checked(page(read_run(fake_run(sites=sites, rounds=2, refuse=(), site_folders=False))))


def test_pictures_of_an_earlier_report_do_not_stay(written):
    assert not (written.html.parent / "slices_gone.png").exists()


def test_no_place_to_write(fake_run, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(FedMedError, match="--out"):
        write_report(fake_run(rounds=1), tmp_path / "file")


def test_curves_count_rounds_from_one_and_end_with_the_last_aggregate(fake_run):
    run = read_run(fake_run(rounds=3, refuse=()))
    assert [x for x, _ in training_scalars.points(run, "train_loss")["ct_east"]] == [1, 2, 3]
    assert [x for x, _ in curves.site_score_points(run)["ct_north"]] == [0, 1, 2, 3]
    assert curves.site_score_points(run)["ct_east"] == []
    assert [x for x, _ in curves.score_points(run)] == [0, 1, 2, 3]


def test_labels_are_moved_apart_in_order():
    places = curves.spread([0.5, 0.51, 0.1, 0.98, 0.99], gap=0.1)
    assert np.argsort(places).tolist() == [2, 0, 1, 3, 4] and max(places) <= 1
    assert np.diff(sorted(places)).min() == pytest.approx(0.1)
    assert curves.spread([], gap=0.1) == []


@pytest.mark.parametrize(("end", "ticks"), [(5, [1, 2, 3, 4, 5]), (20, [1, 5, 10, 15, 20]), (1, [1])])
def test_round_ticks(end, ticks):
    assert plots.round_ticks(1, end) == ticks
    assert len(plots.round_ticks(1, 5000)) <= 13


def test_a_contour_lies_on_the_masks_edge_in_millimetres():
    mask = np.zeros((6, 8), dtype=bool)
    mask[2:4, 0:5] = True
    (line,) = slice_picture.contours(mask, (2.0, 1.0))
    assert np.array_equal(line[0], line[-1])
    assert (line[:, 0].min(), line[:, 0].max()) == (0, 5)
    assert (line[:, 1].min(), line[:, 1].max()) == (4, 8)
    assert slice_picture.contours(np.zeros((4, 4), dtype=bool), (1.0, 1.0)) == []


def test_a_picture_keeps_its_millimetres():
    image = np.zeros((10, 20))
    picture = slice_picture.SlicePicture("best", "a", None, image, image > 0, image > 0, (3.0, 0.5))
    assert slice_picture.extent(picture) == (10.0, 30.0)
    drawn = slice_picture.svg(picture, LUNG)
    assert 'viewBox="0 0 10.0 30.0"' in drawn and 'class="truth"' not in drawn and " l<" not in drawn


@pytest.mark.usefixtures("no_charts")
def test_distant_islands_and_volumes_are_told_where_cases_are_here(fake_run):
    folder = fake_run(rounds=1, refuse=(), sites={"ct_north": "supervised", "ct_west": "evaluate"})
    head = "case,dice,hd95,truth_ml,prediction_ml,islands,islands_ml\n"
    cases = {
        "ct_north": "a,0.85,97,100,110,1,0.5 b,0.9,5,50,55,0,0 c,.8,60,20,18,4,1.5 d,0.8,60,30,27,1,0 e,0.8,9,10,9,2,0",
        "ct_west": "x,0,,0,0,0,0 y,0,80,12,0,0,0",
    }
    for site, rows in cases.items():
        (folder / site / "simulate_job/fedmed/evaluation/cases.csv").write_text(head + rows.replace(" ", "\n"))
    run = read_run(folder)
    assert report_of(run).findings(run) == [
        "Distant islands (10 mm or more from all that is true), a few of which make HD95 large where Dice is high: "
        "ct_north 8, 2 ml together, in c (4), e (2), a (1) and 1 other scan.",
        "ct_west: nothing is marked in 1 of 1 scan that has a true mask.",
        "Volume, predicted less true, mean of the test scans: ct_north +1.8 ml (+4.3 %) and ct_west −6 ml (−100.0 %).",
    ]
    assert "ct_north 8, 2 ml together" in page(run)
    assert "counts them and has the volumes" not in page(run)
    for site in run.sites:
        site.folder, site.cases = None, pd.DataFrame()
    assert report_of(run).findings(run) == [] and "counts them and has the volumes" in page(run)


def test_contours_do_not_vanish_on_tissue_of_any_brightness():
    """In SVG, and in pixels of a picture whose slice is white all over: a dark line lies below each coloured one."""
    mask = np.zeros((40, 40), dtype=bool)
    mask[10:30, 10:30] = True
    picture = slice_picture.SlicePicture("best", "a", None, np.ones((40, 40)), mask, mask[:, ::-1], (1, 1))
    drawn = slice_picture.svg(picture, LUNG)
    assert drawn.count('class="casing"') == 2 and drawn.rindex("casing") < drawn.index('class="truth"')
    figure = Figure(figsize=(2, 2))
    slice_picture.draw(figure.add_axes((0, 0, 1, 1)), picture, LUNG)
    pixels = np.asarray(Image.open(io.BytesIO(plots.png(figure, dots=200))).convert("L"), float)
    inside = pixels[100:300, 60:140]  # the left side of the square, without letters
    assert inside.max() > 250 and inside.min() < 40


def test_a_picture_tells_sides_window_and_volumes():
    image = np.zeros((10, 20))
    volumes = {"millilitres": (5960.0, 6021.0), "window": (-1000.0, 0.0)}
    picture = slice_picture.SlicePicture("best", "a", 0.9, image, image > 0, image > 0, (3.0, 0.5), **volumes)
    words = re.findall(
        r'<text class="(.*?)" .*? text-anchor="(.*?)" .*?>(.*?)</text>', slice_picture.svg(picture, LUNG)
    )
    assert words == [
        ("word", "start", "R"),
        ("word", "end", "L"),
        ("word", "end", "−1000…0 HU"),
        ("word of-truth", "start", "truth 5.96 l"),
        ("word of-prediction", "start", "prediction 6.02 l"),
    ]


@pytest.mark.usefixtures("no_charts")
def test_the_page_says_what_is_marked_on_which_grid_and_what_nobody_has_scored(fake_run):
    folder = fake_run(rounds=2)
    change(folder, "run", classes=[LUNG.facts()], grid=[3.0, 3.0, 6.0])
    change_test(folder, "ct_north", hd95_median=12.34)
    change_test(folder, "ct_east", dice_mean=None, dice_std=None, n_cases=0)
    evaluation = folder / "ct_east/simulate_job/fedmed/evaluation"
    for kind in ("best", "median", "worst"):
        (evaluation / f"{kind}.npz").unlink()
    mask = np.zeros((8, 8), np.uint8)
    shown = {"image": mask / 2, "truth": mask, "prediction": mask + 1, "spacing": (1.0, 1.0), "case": "scan_7"}
    np.savez(evaluation / "unscored_1.npz", **shown, dice=np.nan, millilitres=(np.nan, 4100.0), window=(-1000, 0))
    html = page(read_run(folder))
    for words in (
        "grid that the network sees, voxels of 3 × 3 × 6 mm, not on that of the scan",
        "<dt>marks</dt><dd>lungs</dd>",
        "prediction: lungs",
        "--marked: #7bd88f",
        "12.3 mm",
        "<b>not scored</b></span>",
        "prediction 4.1 l",
        "(10 cases)",
    ):
        assert words in html, words
    assert "truth nan" not in html and "None" not in html


def test_a_colour_like_that_of_the_truth_is_not_used():
    assert slice_picture.outline(LUNG) == "#7bd88f" and slice_picture.outline(Structure(name="a")) == palette.PREDICTION
    assert slice_picture.outline(Structure(name="a", colour="#4f9bd9")) == palette.PREDICTION


@pytest.mark.usefixtures("no_charts")
def test_one_case_has_no_deviation(fake_run):
    run = read_run(fake_run(rounds=2, n_cases=1))
    assert all(row.std is None and row.low is None for row in site_rows(run))
    assert "0.000" not in re.sub(r"<svg.*?</svg>", "", page(run), flags=re.DOTALL)


LUNG = Structure(name="lung", label="lungs", colour="#7bd88f", unit="l")


def contrast(first, second):
    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_site_colour_can_be_seen_on_paper_and_in_the_dark():
    assert min(contrast(colour, palette.PAPER) for colour in palette.LIGHT) >= 3
    assert min(contrast(colour, palette.PAPER_DARK) for colour in palette.DARK) >= 4.5
