"""The lines that the README shows for a hospital's own data, run as they stand on two folders of scans."""

import os
import re
import subprocess
import sys
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest

from fedmed_demo import demo_site

README = Path(__file__).resolve().parents[2] / "README.md"
SHORT = {"rounds: 14": "rounds: 2", "steps: 30": "steps: 2", "rounds: 6": "rounds: 1"}


@pytest.mark.slow
def test_own_data_as_the_readme_shows(fedmed_home, tmp_path):
    (text,) = re.findall(r"(?s)## Your own data\n\n```bash\n(.*?)```", README.read_text(encoding="utf-8"))
    first, *lines = text.splitlines()
    assert first.startswith("source .venv/bin/activate && export FEDMED_HOME=/data/fedmed") and len(lines) == 5
    export(demo_site("chest_ct_tiny", "ct_north", fedmed_home), tmp_path / "a", tmp_path / "a_masks")
    export(demo_site("chest_ct_tiny", "ct_south", fedmed_home), tmp_path / "b", tmp_path / "b_masks")
    for path in sorted((tmp_path / "b_masks").iterdir())[6:]:
        path.unlink()  # a reader has marked six
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "FEDMED_HOME": str(tmp_path / "home"), "PATH": path}
    environment.pop("FEDMED_SITE_CONFIGS", None)
    for line in lines:
        run = line.replace("/export/", f"{tmp_path}/")
        done = subprocess.run(run, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        if "study init" in line:  # write your sites into it
            write_sites(tmp_path / "my_study.yaml")
    assert (tmp_path / "runs" / "my_study" / "report" / "gain.png").is_file(), "the site without masks is compared"
    assert (tmp_path / "models" / "my_lesions_segmentation" / "models" / "model.ts").is_file()


def export(site: Path, images: Path, masks: Path | None = None) -> None:
    """Folders as a hospital has them: a scan and its mask have the same name."""
    for kind, folder in (("images", images), ("labels", masks)):
        if folder:
            folder.mkdir()
            for number, path in enumerate(sorted((site / kind).iterdir())):
                stored = nib.load(path)
                for more in range(3):  # 27 patients: a report says nothing of fewer than five test cases
                    voxels = np.asanyarray(stored.dataobj) + (3 * more if kind == "images" else 0)
                    image = nib.Nifti1Image(voxels.astype(stored.get_data_dtype()), stored.affine)
                    nib.save(image, folder / f"p{3 * number + more:03}.nii.gz")


def write_sites(study: Path) -> None:
    """What a person does: the two sites in the place of the four examples; and a run of seconds."""
    text = re.sub(r"(?m)^  hospital_[cd]: .*\n", "", study.read_text(encoding="utf-8"))
    text = re.sub(r"(?m)^  hospital_b: .*$", "  hospital_b: unsupervised", text)
    for long, short in SHORT.items():
        assert long in text
        text = text.replace(long, short)
    study.write_text(text, encoding="utf-8")
