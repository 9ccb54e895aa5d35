"""Files that a preparation does not read."""

from fedmed.data.prepare.folder import files_left


def test_each_kind_is_named_with_its_number(tmp_path):
    for name in ("a.nii.gz", "b.seg.nrrd", "c.SEG.NRRD", "._a.nii.gz", "a.nii.gz.json", "x.zip", "old/d.nii.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    lines = files_left([tmp_path], [tmp_path / "a.nii.gz"], [tmp_path / "old"])
    assert [line.split(" (")[0] for line in lines] == ["1 × ._*", "1 × .json", "2 × .seg.nrrd", "1 × .zip"]
    assert not files_left([tmp_path], [tmp_path])
