"""The page for a hospital: scores of its models on the same cases, single cases, groups; and what leaves of it."""

import json
import logging
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from scipy.stats import ttest_rel

from fedmed.bundles.bundle import Bundle
from fedmed.methods.method import Method
from fedmed.reports import hospital_page, timelines
from fedmed.reports.hospital_gain import hospital_gain
from fedmed.reports.hospital_groups import grouped
from fedmed.settings.site import load_file
from fedmed.training.case_recorder import COLUMNS, EVERY_CASE, write_patients, write_pictures, write_table
from tests.reports.test_report_page import checked

CT, XRAY = Bundle("covid_ct_segmentation", ["demo"]), Bundle("cxr_classification", ["demo"])
VIDEOS = {
    name: Bundle(name, ["demo"])
    for name in ("surgical_phase_classification", "surgical_tool_classification", "instrument_segmentation")
}
N = 12
ALONE = np.linspace(0.3, 0.86, N)
TOGETHER = ALONE + np.array([0.1, -0.02, 0.12, 0.0, 0.05, 0.05, 0.08, -0.05, 0.26, 0.03, 0.09, 0.13])
TRUE = np.linspace(5, 60, N)
ERRORS = {"evaluation_alone": 4.0, "evaluation": 2.0, "evaluation_last": 8.0}  # ml
ATTRIBUTES = {
    **{"scanner": ["Force"] * 6 + ["Revolution"] * 6, "ward": ["icu"] * 4 + ["ward"] * 8, "age": range(30, 42)},
    **{"accession": [f"A<{n}>" for n in range(N)], "sex": ["f", "m", None, ""] * 3, "dose": 3},
}


def names(n=N):
    return [f"scan_{place}" for place in range(n)]


def square(size):
    mask = np.zeros((20, 24), np.uint8)
    mask[4 : 4 + size, 4 : 4 + size] = 1
    return mask


def hospital(folder, n=N, attributes=ATTRIBUTES):
    """A site with a test list of n scans, one a patient; without images, of which nothing but headers is read."""
    lists = {name: [value] * N if isinstance(value, int) else list(value) for name, value in attributes.items()}
    entries = [
        {"image": f"images/{name}.nii.gz", "label": "x", "patient": f"person_{place}"}
        | {key: values[place] for key, values in lists.items() if values[place] is not None}
        for place, name in enumerate(names(n))
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "datalist.json").write_text(json.dumps({"testing": entries}))
    (folder / "north.yaml").write_text(yaml.safe_dump({"data_root": str(folder), "device": "cpu"}))
    return load_file(folder / "north.yaml")


def segmented(folder, n=N):
    """Tests of three models of masks."""
    scores = {"evaluation_alone": ALONE, "evaluation": TOGETHER, "evaluation_last": ALONE + 0.01}
    for model, dices in scores.items():
        called = TRUE + ERRORS[model] * (-1) ** np.arange(N)
        rows = [(dices[i], 10.0 * ERRORS[model] + i, TRUE[i], called[i], 0, 0) for i in range(n)]
        table = [(name, *map(str, row)) for name, row in zip(names(n), rows, strict=True)]
        write_table(folder / model / "cases.csv", COLUMNS, table)
        write_patients(folder / model, names(n), [f"person_{place}" for place in range(n)])
        pictures = {
            str(place + 1): {
                "image": np.full((20, 24), 0.5),
                "truth": square(8),
                "prediction": square(6),
                "case": name,
                "spacing": (1.0, 1.0),
                "dice": dices[place],
            }  # fmt: skip
            for place, name in enumerate(names(n))
        }
        write_pictures(folder / model / EVERY_CASE, pictures)


def classified(folder, labels, alone, together):
    """Tests of two models of two classes: (n,) probabilities of the second one."""
    for model, values in {"evaluation_alone": alone, "evaluation": together}.items():
        rows = [
            (name, ("normal", "covid")[label], str(1 - p), str(p))
            for name, label, p in zip(names(len(labels)), labels, values, strict=True)
        ]
        write_table(folder / model / "cases.csv", ["case", "label", "p_normal", "p_covid"], rows)


def gain(folder, bundle=CT, site=None, images=None, **study):
    site = site or hospital(folder / "site")
    numbers = hospital_gain(site, folder, bundle, Method(), {"name": "x", "rounds": 1, **study}, images)
    page = folder / "gain.html"
    return numbers, page.read_text() if page.is_file() else ""


def cells(page, head):
    """Cells of the row of a table that begins with a text."""
    row = re.search(rf"<tr[^>]*><td[^>]*>{re.escape(head)}.*?</tr>", page, re.DOTALL)
    return re.findall(r"<td[^>]*>(.*?)</td>", row[0])


@pytest.fixture(scope="module")
def masks(tmp_path_factory):
    """Numbers and page of a hospital whose three models of masks are compared."""
    folder = tmp_path_factory.mktemp("masks")
    segmented(folder)
    return gain(folder)


def test_the_numbers_of_masks_are_those_of_scipy_and_of_a_hand(masks):
    numbers, page = masks
    low, high = ttest_rel(TOGETHER, ALONE).confidence_interval()
    assert numbers["gain"] == pytest.approx((TOGETHER - ALONE).mean()) and numbers["gain_better"] == 9
    assert numbers["gain_low"] <= low + 1e-9 and numbers["gain_high"] >= high - 1e-9
    span = f"{numbers['gain_low']:+.3f} to {numbers['gain_high']:+.3f}"
    assert f"Dice together {TOGETHER.mean():.2f}, alone {ALONE.mean():.2f}: better for 9 of 12 patients." in page
    assert f"(95 % interval {span}). Better off" in page
    assert "not a medical device" in page and "identical" not in page
    middle = np.median(20.0 + np.arange(N))
    row = cells(page, "together: the model that was selected")
    assert row[1:] == [f"{TOGETHER.mean():.3f}", f"{numbers['gain']:+.3f}", span, f"{middle:.1f}", "2.0",
                       f"{100 * 2 / TRUE.mean():.0f}"]  # fmt: skip
    assert cells(page, "alone: trained")[2:4] == ["–", "–"] and cells(page, "together: after the last")[1] == "0.590"
    checked(page)
    assert page.count('<svg class="slice"') == 2 * (5 + 2) and "Gained most" in page  # two lost anything
    assert page.index("<b>scan_8</b>") < page.index("<b>scan_11</b>") < page.index("<b>scan_7</b>")


def test_groups_of_few_cases_and_odd_attributes_are_left_out_and_names_do_not_leave(masks):
    numbers, page = masks
    force = cells(page, "Force")
    assert force[1:5] == ["6", f"{ALONE[:6].mean():.3f}", f"{TOGETHER[:6].mean():.3f}", "+0.050"]
    low, high = ttest_rel(TOGETHER[:6], ALONE[:6]).confidence_interval()
    assert [float(text.replace("−", "-")) for text in force[5].split(" to ")] == pytest.approx([low, high], abs=6e-4)
    assert cells(page, "ward")[1] == "8" and ">icu<" not in page
    assert "Left out: 4 cases in one group of fewer than 5 cases." in page
    assert "accession: 12 different" not in page and "A&lt;" not in page  # a group each, and none is large enough
    assert "sex: each group has fewer than 5 cases" in page and "dose: the same for all cases" in page
    assert "By age" not in page and "age: each group has fewer than 5 cases" in page
    assert set(numbers) == {"gain", "gain_patients", "gain_low", "gain_high", "gain_error", "gain_p", "gain_better"}
    assert all(isinstance(value, int | float) for value in numbers.values())
    assert "scan_8" in page and "person_8" in page


def test_attributes_become_groups():
    assert grouped("age", [41, 30, 35, None, "62", 50, 59]).groups == ["30 to 35", "41 to 50", "59 to 62"]
    assert grouped("age", [41, 30, 35, None, "62", 50, 59]).members[3] == ""
    assert grouped("slices", [1, 5, 5, 10]).groups == ["1", "5", "10"]
    assert grouped("contrast", [True, False, None]).members == ["yes", "no", ""]
    assert grouped("sex", ["m", "", "f", 3]).groups == ["3", "f", "m"]
    assert "13 different values" in grouped("id", list("abcdefghijklm"))
    assert "no case says it" in grouped("x", [None, ""]) and "neither" in grouped("x", [[1], {}])
    assert "the same" in grouped("x", [2, 2, None])
    assert grouped("x", [1, 1, 1, 1, 2, 3, 4, 5, 6]).groups == ["1", "2 to 3", "4 to 6"]


def test_probabilities_have_calibration_and_the_image_of_a_case(tmp_path):
    labels = [0, 0, 0, 1, 1, 1]
    alone, together = [0.4, 0.6, 0.2, 0.5, 0.7, 0.9], [0.2, 0.3, 0.1, 0.8, 0.6, 0.95]
    classified(tmp_path, labels, alone, together)
    numbers, page = gain(
        tmp_path, XRAY, hospital(tmp_path / "s", 6, {}), lambda place: torch.full((1, 6, 5), place / 9)
    )
    brier = 2 * np.mean((np.array(together) - labels) ** 2)
    assert numbers["gain"] == pytest.approx(1 - 8 / 9) and "gain_better" not in numbers
    assert -1 <= numbers["gain_low"] < numbers["gain_high"] == 1  # further apart no scores are
    assert "a higher probability of the true class for 5 of 6 patients" in page
    assert cells(page, "together: the model")[4:] == [
        "100",
        f"{np.mean([0.2, 0.3, 0.1, 0.2, 0.4, 0.05]):.3f}",
        f"{brier:.3f}",
    ]
    assert page.count("data:image/png") == 6 and cells(page, "covid, true") == ["covid, true", "0.50", "0.80"]
    checked(page)


def recorded_videos(folder, score, pictures, n=N):
    """Tests of two models of videos; pictures: of the model alone and the one together, without name and score."""
    for (model, values), content in zip(
        {"evaluation_alone": ALONE, "evaluation": TOGETHER}.items(), pictures, strict=True
    ):
        rows = [(name, "9", str(value)) for name, value in zip(names(n), values, strict=False)]
        write_table(folder / model / "cases.csv", ["case", "n_frames", score], rows)
        named = {str(i + 1): {"case": name, score: values[i], **content} for i, name in enumerate(names(n))}
        write_pictures(folder / model / EVERY_CASE, named)


def test_phases_of_the_videos_that_changed_most_are_ribbons(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(timelines, "_draw_phases", lambda axes, rows, *_: drawn.append(rows))
    bundle = VIDEOS["surgical_phase_classification"]
    phases = [one.name for one in bundle.classes]
    facts = {"times": np.arange(4.0), "classes": np.array(phases), "truth": np.array([0, 0, 1, 1])}
    recorded_videos(tmp_path, "f1", [facts | {"called": np.array(c)} for c in ([1, 1, 1, 1], [0, 0, 0, 1])])
    _, page = gain(tmp_path, bundle)
    checked(page)
    assert len(drawn) == page.count('<figure class="wide"><svg') - 1 == 5 + 2
    for rows in drawn:
        seen = {title: ribbon.present.argmax(1).tolist() for title, ribbon in rows.items()}
        assert seen == {"truth": [0, 0, 1, 1], "alone": [1, 1, 1, 1], "together": [0, 0, 0, 1]}
    assert f"1  {phases[0].replace('_', ' ')}</span>" in page and "the true phases along time" in page


def test_tools_of_the_videos_that_changed_most_are_rows_of_what_is_there_or_called(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(timelines, "draw_ribbons", lambda axes, names, ribbons, unit: drawn.append((names, ribbons)))
    bundle = VIDEOS["surgical_tool_classification"]
    tools = [one.name for one in bundle.classes]
    seen = np.arange(len(tools)) == 1
    facts = {"times": np.arange(3.0), "classes": np.array(tools), "threshold": 0.5, "truth": np.array([seen] * 3)}
    models = (np.arange(len(tools)) == 2, seen)
    recorded_videos(tmp_path, "f1", [facts | {"probabilities": np.array([one] * 3) * 0.8} for one in models])
    _, page = gain(tmp_path, bundle)
    checked(page)
    assert len(drawn) == page.count('<figure class="wide"><svg') - 1 == 5 + 2
    for names_drawn, ribbons in drawn:
        assert names_drawn == tools[1:3]
        assert [ribbon.present[0].argmax() for ribbon, _ in ribbons] == [1, 2, 1]
        assert len({colour for _, colour in ribbons}) == 3
    assert page.index(">truth</span>") < page.index(">alone</span>") < page.index(">together</span>")


def test_the_frame_that_changed_most_with_its_video_has_the_outlines_of_truth_and_model(tmp_path, caplog):
    """Of three frames, after seven of other videos, the second gained most; where a video lost, the third."""
    bundle = VIDEOS["instrument_segmentation"]
    classes, colours = zip(*((one.name, one.colour) for one in bundle.classes), strict=True)
    facts = {"first": 7, "classes": np.array(classes), "frames": np.array(["a, 0.0 s", "a, 1.0 s", "a, 2.0 s"])}
    alone, together = square(6), 2 * square(7)
    masks = [{f"masks_{n}": np.stack([called, 2 * square(8)]) for n in range(3)} for called in (alone, together)]
    gained = [facts | one | {"dice": np.array(d)} for one, d in zip(masks, ([0.5] * 3, [0.6, 0.9, 0.1]), strict=True)]
    lost = [facts | one | {"dice": np.array(d)} for one, d in zip(masks, ([0.5] * 3, [0.6, 0.4, 0.1]), strict=True)]
    recorded_videos(tmp_path, "dice", gained)
    for model, content in zip(("evaluation_alone", "evaluation"), lost, strict=True):
        write_pictures(tmp_path / model / EVERY_CASE, {"8": content})  # of scan_7
    asked = []

    def clip(place):
        asked.append(place)
        return torch.full((4, 3, 20, 24), 90, dtype=torch.uint8)

    _, page = gain(tmp_path, bundle, images=clip)
    checked(page)
    frames = re.findall(r'<svg class="slice".*?</svg>', page, re.DOTALL)
    assert asked == [8] * 5 + [9, 8] and len(frames) == 2 * 7
    assert page.count("data:image/png") == 7, "a frame is there once for both models"
    for by_alone, by_all in zip(frames[::2], frames[1::2], strict=True):
        assert by_alone.count(f'class="truth" style="stroke: {colours[1]}"') == 1
        assert by_alone.count(f'class="prediction" style="stroke: {colours[0]}"') == 1
        assert by_all.count(f'class="prediction" style="stroke: {colours[1]}"') == 1
        assert re.search('<image id="(.*?)"', by_alone)[1] == re.search('<use href="#(.*?)"', by_all)[1]
    assert "<span>together: a, 1.0 s, Dice 0.90</span>" in page and "together: a, 2.0 s, Dice 0.10" in page
    assert f"background: {colours[2]}" in page
    other = {"9": gained[1] | {"dice": np.array([0.1])}}
    write_pictures(tmp_path / "evaluation" / EVERY_CASE, other)
    page = gain(tmp_path, bundle, images=clip)[1]
    assert page.count('<svg class="slice"') == 2 * 6 and "are not of the same frames" in caplog.text


def test_videos_without_pictures_of_every_case_have_their_scores(tmp_path, caplog):
    bundle = VIDEOS["surgical_phase_classification"]
    recorded_videos(tmp_path, "f1", [{}, {}])
    page = gain(tmp_path, bundle)[1]
    assert caplog.text.count("no picture of case") == 7 and "<b>scan_8</b>" in page and "along time" not in page


@pytest.mark.parametrize(
    ("n", "says"), [(1, "of 1 patient there is no interval. Too few patients"), (0, "nothing to compare")]
)
def test_few_cases_and_none(tmp_path, n, says):
    segmented(tmp_path, n)
    numbers, page = gain(tmp_path, site=hospital(tmp_path / "site", n))
    assert says in page and numbers["gain_patients"] == n and "gain_low" not in numbers
    checked(page)


def test_without_room_for_the_page_or_its_pictures_the_numbers_are_there(tmp_path, monkeypatch, caplog):
    segmented(tmp_path)
    (tmp_path / "evaluation" / EVERY_CASE / "9.npz").write_bytes(b"damaged")
    site = hospital(tmp_path / "site", 5)  # fewer than were tested
    page = gain(tmp_path, site=site)[1]
    assert "no picture of case 'scan_8'" in caplog.text and "By scanner" not in page and "true volume, ml: each" in page
    (tmp_path / "gain.html").unlink()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hospital_page, "write_atomically", full)
    caplog.clear()
    with caplog.at_level(logging.ERROR):
        numbers, page = gain(tmp_path, site=site)
    assert numbers["gain_better"] == 9 and page == ""
    assert [line for line in caplog.messages if "No space left" in line and "gain.html" in line] == caplog.messages


def test_own_layers_are_named(tmp_path):
    segmented(tmp_path)
    assert "together, with own layers" in gain(tmp_path, sharing="block_6")[1]
    assert "own layers" not in gain(tmp_path, sharing={"unsupervised": "encoder"})[1]
    assert Path(tmp_path / "gain.html").stat().st_mode & 0o077 == 0
