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
from fedmed.reports import hospital_page
from fedmed.reports.hospital_gain import hospital_gain
from fedmed.reports.hospital_groups import grouped
from fedmed.settings.site import load_file
from fedmed.training.case_recorder import COLUMNS, EVERY_CASE, write_patients, write_pictures, write_table
from tests.reports.test_report_page import checked

CT, XRAY = Bundle("covid_ct_segmentation", ["demo"]), Bundle("cxr_classification", ["demo"])
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


def test_the_numbers_of_masks_are_those_of_scipy_and_of_a_hand(tmp_path):
    segmented(tmp_path)
    numbers, page = gain(tmp_path)
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


def test_groups_of_few_cases_and_odd_attributes_are_left_out_and_names_do_not_leave(tmp_path):
    segmented(tmp_path)
    numbers, page = gain(tmp_path)
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
