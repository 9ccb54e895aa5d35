"""The command that makes a bundle of a run."""

from functools import partial

import pytest


@pytest.fixture
def export(run_script):
    return partial(run_script, "export")


def test_one_command_makes_a_bundle_and_says_how_to_go_on(export, finished_run, tmp_path):
    out = tmp_path / "covid_ct_segmentation"
    code, said, complaint = export(finished_run, out, "--version", "1.0.0")
    assert (code, complaint) == (0, "") and (out / "models" / "model.ts").is_file()
    assert said.startswith(f"{out}: version 1.0.0, the model after round ")
    assert "overlays left: agreement, consistency, cpu, evaluate, " in said and "model card: " in said
    served, run, adapted = said.splitlines()[-3:]
    assert served.startswith("in MONAI Label:  scripts/label.sh /data/images")
    assert "python -m monai.bundle run --config_file configs/inference.yaml" in run and "fedmed adapt" in adapted
    assert len(said.splitlines()) <= 10


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["{tmp}/nothing", "{tmp}/x_segmentation"], "the folder does not exist"),
        (["{run}", "{tmp}/x_segmentation", "--site", "ct_north"], "leave out --site"),
        (["{run}", "{tmp}/x_segmentation", "--verify-on", "{tmp}/x.nii.gz"], "x.nii.gz does not exist"),
        (["{run}", "{tmp}/x_segmentation", "--version", "one"], "'one' is not a version"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(export, finished_run, tmp_path, options, message):
    code, said, complaint = export(*(option.format(tmp=tmp_path, run=finished_run) for option in options))
    assert (code, said) == (2, "") and message in complaint
    assert complaint.startswith("error: ") and complaint.count("\n") == 1
    assert not list(tmp_path.iterdir())
