"""Hospitals with videos and a model of their own: the page shows when each called a tool, and keeps no picture."""

from fedmed.federation.loop import run_job
from tests.federation.run_folder import records, result_of

LIVELY = {"image_size": [24, 32], "batch_size": 8, "learning_rate": 0.3}  # so that the models call other frames


def test_a_video_in_which_the_models_differ_is_drawn_for_its_hospital(write_tiny_tools_job, tmp_path):
    job = write_tiny_tools_job(tmp_path, rounds=1, steps=6, gain=True, overrides={"supervised": LIVELY})
    run_job(job, tmp_path / "ws")
    tested = result_of(tmp_path / "ws")["test_alone"]
    assert set(tested) == {"lap_hei1", "lap_hei2"} and any(scores["gain"] for scores in tested.values())
    for site, scores in tested.items():
        folder = records(tmp_path / "ws", site)
        page = (folder / "gain.html").read_text()
        assert ("Of each video when a tool was there" in page) == bool(scores["gain"])
        assert page.count("<svg") == (2 if scores["gain"] else 1)  # patient by patient, and the one video
        assert (folder / "evaluation_alone" / "cases.csv").is_file() and not list(folder.rglob("every_case"))
