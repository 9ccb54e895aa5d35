"""Inference of whole scans: the result lies on the image's own grid, and memory stays bounded."""

import re
import shutil
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import torch
from covid_ct.errors import BundleInputError
from covid_ct.transforms import SafeSpacingd
from monai.bundle import ConfigWorkflow
from monai.data import MetaTensor
from monai.transforms import Compose, Invertd, Spacing
from scipy.spatial.transform import Rotation
from torch import nn

from fedmed.data.geometry import corner_distance
from fedmed.errors import unwrapped
from research.runner.lidc import default_data

# One of the five files is a copy of another.
REAL = [p for p in sorted((default_data().parent / "ct_lung_volumes").glob("*/*_ct.nii.gz")) if "_lungs_" not in p.name]
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class DenserThanHalf(nn.Module):
    """In place of a trained network: a voxel above -500 HU is a lesion."""

    def forward(self, window):
        logit = 40 * (window - 0.5)
        return torch.cat([-logit, logit], dim=1)


@pytest.fixture
def infer(configs, bundle, tmp_path):
    """Return a function: folder of images, settings -> the results, as nibabel images, by the image's name."""

    def run(folder, **values):
        torch.save({}, tmp_path / "model.pt")
        values = {"bundle_root": str(bundle), "device": "cpu", "window_overlap": [0.25] * 3, **values}
        values |= {"dataset_dir": str(folder), "output_dir": str(tmp_path / "out"), "window_batch": 1}
        made = ConfigWorkflow(
            configs("inference"), workflow_type="inference", logging_file=False, network_def=DenserThanHalf(),
            model_path=str(tmp_path / "model.pt"), **values,
        )  # fmt: skip
        made.initialize()
        made.run()
        return {path.name: nib.load(path) for path in sorted((tmp_path / "out").glob("*.nii.gz"))}

    return run


def affine_of(axes: str, spacing: tuple, degrees: tuple = (0.0, 0.0, 0.0)) -> np.ndarray:
    """Voxel-to-RAS matrix of an image whose array axes run towards ``axes``, turned by ``degrees``."""
    directions = {"R": (1, 0, 0), "L": (-1, 0, 0), "A": (0, 1, 0), "P": (0, -1, 0), "S": (0, 0, 1), "I": (0, 0, -1)}
    matrix = np.eye(4)
    turned = Rotation.from_euler("xyz", degrees, degrees=True).as_matrix()
    matrix[:3, :3] = turned @ np.array([directions[axis] for axis in axes]).T @ np.diag(spacing)
    matrix[:3, 3] = (-31.5, 12.25, -400.0)
    return matrix


def phantom(shape: tuple, affine: np.ndarray) -> np.ndarray:
    """Bool mask of two ellipsoids, defined in millimetres from the volume's middle; they differ in every direction."""
    places = np.stack(np.meshgrid(*map(np.arange, shape), indexing="ij"), axis=-1) @ affine[:3, :3].T
    away = places - (np.array(shape) - 1) / 2 @ affine[:3, :3].T
    large = ((away - [6, -5, 4]) / [17, 12, 25]) ** 2
    small = ((away - [-14, 12, -20]) / [7, 9, 16]) ** 2
    return (large.sum(-1) < 1) | (small.sum(-1) < 1)


def save(mask: np.ndarray, affine: np.ndarray, path: Path) -> None:
    """A CT in which the mask is dense (-200 HU) and the rest aerated lung (-850 HU)."""
    path.parent.mkdir(exist_ok=True)
    nib.save(nib.Nifti1Image(np.where(mask, -200, -850).astype(np.int16), affine), path)


def dice(a: np.ndarray, b: np.ndarray) -> float:
    return 2 * float((a & b).sum()) / float(a.sum() + b.sum())


@pytest.mark.parametrize(
    ("axes", "spacing", "degrees", "gantry"),
    [
        ("RAS", (0.8, 0.8, 5.0), (0, 0, 0), 0),
        ("LPS", (0.7, 0.7, 4.0), (0, 0, 0), 0),
        ("LAS", (1.3, 1.1, 2.5), (0, 0, 0), 0),
        ("RAI", (0.9, 0.9, 7.5), (0, 0, 0), 0),
        ("PSR", (1.0, 3.0, 1.4), (0, 0, 0), 0),  # sagittal slices
        ("ILP", (5.0, 0.9, 0.9), (0, 0, 0), 0),
        ("LPS", (0.9, 0.9, 5.0), (12, 0, 0), 0),  # tilted towards the feet
        ("RAS", (1.0, 1.0, 3.0), (-9, 14, 25), 0),
        ("LPS", (0.9, 0.9, 5.0), (0, 0, 0), 12),  # each slice a little further towards the front
    ],
)
def test_a_mask_survives_the_way_to_the_network_and_back(infer, tmp_path, axes, spacing, degrees, gantry):
    affine = affine_of(axes, spacing, degrees)
    affine[1, 2] += 5 * np.tan(np.deg2rad(gantry))
    sizes = {"R": 66, "L": 66, "A": 58, "P": 58, "S": 92, "I": 92}
    shape = tuple(round(sizes[axis] / s) for axis, s in zip(axes, spacing, strict=True))
    truth = phantom(shape, affine)
    save(truth, affine, tmp_path / "in" / "scan.nii.gz")
    (name, result), *others = infer(tmp_path / "in", window_size=[48, 48, 16]).items()
    source = nib.load(tmp_path / "in" / "scan.nii.gz")
    assert name == "scan_covid.nii.gz" and not others
    assert result.shape == source.shape and result.get_data_dtype() == np.uint8
    assert corner_distance(result.affine, source.affine, source.shape) < 1e-3
    assert dice(np.asarray(result.dataobj) == 1, truth) > 0.95


@pytest.mark.skipif(not REAL, reason="the real volumes of the development data are not here")
@pytest.mark.parametrize("path", REAL, ids=lambda path: path.name.removesuffix("_ct.nii.gz"))
def test_grids_of_real_scans(infer, tmp_path, path):
    """Body against air stands for the mask: every real scan has it, at its own spacing and orientation."""
    source = nib.load(path)
    truth = np.asarray(source.dataobj) > -400
    save(truth, source.affine, tmp_path / "in" / path.name)
    (result,) = infer(tmp_path / "in", pixdim=[1.5, 1.5, 3.0], window_size=[96, 96, 32]).values()
    assert result.shape == source.shape
    assert corner_distance(result.affine, source.affine, source.shape) < 1e-3
    assert dice(np.asarray(result.dataobj) == 1, truth) > 0.95


# --- scans that cannot be read


@pytest.mark.parametrize("workers", [0, 2])
def test_scans_that_cannot_be_read_are_named_and_the_others_get_their_masks(infer, tmp_path, caplog, workers):
    affine, folder = affine_of("RAS", (6.0, 6.0, 16.0)), tmp_path / "in"
    for name in ("a", "c", "d", "z"):
        save(phantom((12, 12, 6), affine), affine, folder / f"{name}.nii.gz")
    (folder / "b.nii").write_bytes(b"no scan")
    (folder / "c.nii.gz").write_bytes((folder / "c.nii.gz").read_bytes()[:99])  # the copy was interrupted
    nib.save(nib.Nifti1Image(np.zeros((12, 12, 6, 2), np.int16), affine), folder / "d.nii.gz")
    with pytest.raises(RuntimeError) as caught:
        infer(folder, pixdim=[6.0, 6.0, 16.0], window_size=[16, 16, 16], num_workers=workers)
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["a_covid.nii.gz", "z_covid.nii.gz"]
    said = str(unwrapped(caught.value))
    assert said.startswith("3 of 5 scans could not be read; the others have their masks: ")
    for name in ("b.nii", "c.nii.gz", "d.nii.gz"):
        assert f"{folder / name}: " in said and f"{folder / name}: " in caplog.text


def test_a_folder_without_one_readable_scan_says_why(infer, tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.nii").write_bytes(b"no scan")
    with pytest.raises(RuntimeError) as caught:
        infer(tmp_path / "in")
    assert re.match(
        r"1 of 1 scans could not be read: .*a\.nii: cannot be read \(.*\); copy", str(unwrapped(caught.value))
    )


# --- resampling


@pytest.mark.parametrize("pixdim", [(3.0, 3.0, 6.0), (0.8, 0.8, 5.0), (1.7, 0.5, 2.0), (1.5, 1.2, 4.0)])
def test_resampling_equals_monai_s_there_and_back(pixdim):
    image = MetaTensor(torch.rand(2, 19, 17, 11), affine=torch.tensor(affine_of("LPS", (1.5, 1.2, 4.0))))
    monai, ours = Spacing(pixdim), Compose([SafeSpacingd("image", pixdim)])
    expected, case = monai(image), ours({"image": image})
    assert case["image"].shape == expected.shape
    assert torch.allclose(case["image"].affine, expected.affine, atol=1e-9)
    assert torch.allclose(case["image"], expected, atol=1e-4)
    case["pred"] = MetaTensor(torch.rand(expected.shape))
    back = Invertd("pred", ours, "image", nearest_interp=False)(case)["pred"]
    expected = monai.inverse(MetaTensor(case["pred"]).copy_meta_from(expected))
    assert back.shape == image.shape and torch.equal(back.affine, image.affine)
    assert torch.allclose(back, expected, atol=1e-4)


@pytest.mark.parametrize("turned", [(0, 0, 0), (6, -9, 14)])
def test_the_grid_is_that_of_training_also_where_its_size_is_a_tie(turned):
    """259 voxels of 1 mm are 323.5 voxels of 0.8 mm: rounding errors decide, and must be MONAI's."""
    for size in (5, 7, 9, 11, 15, 19, 23, 27, 31, 35, 39, 43):
        for spacing in ((1.0, 2.0, 2.5), (0.6, 0.6, 7.5)):
            affine = affine_of("LPS", spacing, turned)
            image = MetaTensor(torch.zeros(1, size, size, size), affine=torch.tensor(affine))
            ours = SafeSpacingd("image", (0.8, 0.8, 5.0))({"image": image})["image"]
            assert ours.shape == Spacing((0.8, 0.8, 5.0))(image).shape, (size, spacing)


def test_a_tilted_gantry_is_straightened_as_in_training_and_tilted_again():
    affine = np.diag([1.2, 1.2, 5.0, 1.0])
    affine[1, 2] = 5 * np.tan(np.deg2rad(12))
    image = MetaTensor(torch.rand(1, 18, 20, 9), affine=torch.tensor(affine))
    monai, ours = Spacing((2.0, 2.0, 4.0)), Compose([SafeSpacingd("image", (2.0, 2.0, 4.0))])
    expected, case = monai(image), ours({"image": image})
    assert case["image"].shape == expected.shape and torch.equal(case["image"].affine, expected.affine)
    assert torch.equal(case["image"], expected)
    case["pred"] = MetaTensor(torch.rand(expected.shape))
    back = Invertd("pred", ours, "image", nearest_interp=False)(case)["pred"]
    assert back.shape == image.shape and torch.allclose(back.affine, image.affine)
    assert torch.allclose(back, monai.inverse(MetaTensor(case["pred"]).copy_meta_from(expected)))


@pytest.mark.parametrize("dtype", [torch.int16, torch.uint8, torch.float16, torch.float64])
def test_any_type_of_number_is_resampled(dtype):
    values = torch.randint(0, 200, (1, 7, 6, 5)).to(dtype)
    image = MetaTensor(values, affine=torch.diag(torch.tensor([1.0, 1.0, 2.0, 1.0])))
    ours = SafeSpacingd("image", (1.5, 1.5, 1.5))({"image": image})["image"]
    assert ours.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.allclose(ours.float(), Spacing((1.5, 1.5, 1.5))(image), atol=1e-3)


def test_a_volume_of_one_slice_and_a_size_below_zero():
    image = MetaTensor(torch.rand(1, 6, 5, 1), affine=torch.diag(torch.tensor([1.0, 1.0, 5.0, 1.0])))
    assert SafeSpacingd("image", (2.0, 2.0, 1.0))({"image": image})["image"].shape == (1, 4, 3, 1)
    for pixdim in ((1.0, 0.0, 1.0), (1.0, 1.0)):
        with pytest.raises(BundleInputError, match="three sizes in mm"):
            SafeSpacingd("image", pixdim)


# --- memory


def peak(reset: bool = False) -> float:
    """The most memory that this process has held since the last reset, in MB."""
    if reset:
        CLEAR.write_text("5")
    return int(re.search(r"VmHWM:\s+(\d+)", STATUS.read_text()).group(1)) / 1024


@pytest.mark.skipif(not CLEAR.exists(), reason="needs Linux to tell how much memory was held")
def test_memory_is_a_few_volumes_however_many_scans(infer, tmp_path):
    """Also with voxels as fine as the scan's, and with a finished scan before the one at work."""
    shape, affine = (192, 192, 40), affine_of("LPS", (1.2, 1.2, 5.0))
    volume = np.prod(shape) * 4 / 2**20  # MB in float32
    save(phantom(shape, affine), affine, tmp_path / "in" / "0.nii.gz")
    for number in range(1, 6):
        shutil.copy(tmp_path / "in" / "0.nii.gz", tmp_path / "in" / f"{number}.nii.gz")
    settings = {"pixdim": [1.3, 1.3, 4.5], "window_size": [64, 64, 16]}
    save(phantom((64, 64, 16), affine), affine, tmp_path / "small" / "0.nii.gz")
    infer(tmp_path / "small", **settings)  # what is imported on first use is not counted
    before = peak(reset=True)
    assert len(infer(tmp_path / "in", **settings)) == 6
    # Up to eight were seen, with what Python keeps for later; what is kept of each scan would come on top.
    assert peak() - before < 9 * volume
