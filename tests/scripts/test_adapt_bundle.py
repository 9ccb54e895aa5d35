"""The command that adapts a bundle to a hospital's own images."""

from functools import partial

import pytest

from fedmed_demo import demo_site


@pytest.fixture
def adapt(run_script):
    return partial(run_script, "adapt")


def test_one_command_says_of_each_adaptation_why(adapt, exported_bundle, fedmed_home, tmp_path):
    images, out = demo_site("chest_ct_tiny", "ct_west", fedmed_home) / "images", tmp_path / "own_segmentation"
    code, said, complaint = adapt(exported_bundle, images, out, "--few", "--device", "cpu")
    assert (code, complaint) == (0, "") and (out / "docs" / "page.html").is_file()
    lines = said.splitlines()
    assert lines[0].startswith(f"{out}: version ") and lines[0].endswith("scans")
    assert [line.split(":")[0].strip() for line in lines[1:4]] == ["intensity", "colour", "statistics"]
    assert lines[-2] == f"before and after: {out / 'docs' / 'page.html'}"
    assert lines[-1].startswith("Nothing was changed: OUT is a copy of the bundle.")


def test_mistakes_are_one_line_and_leave_nothing(adapt, exported_bundle, tmp_path):
    code, said, complaint = adapt(exported_bundle, tmp_path / "nowhere", tmp_path / "own_segmentation")
    assert (code, said) == (2, "") and complaint.startswith("error: ") and complaint.count("\n") == 1
    assert "nowhere does not exist" in complaint and not list(tmp_path.iterdir())


def test_none_goes_with_no_other(adapt, capsys):
    code, _, complaint = adapt("BUNDLE", "IMAGES", "OUT", "--adaptation", "none", "--adaptation", "colour")
    assert code == 2 and "--adaptation none goes with no other" in complaint
