"""Read DICOM series with ITK and turn them into NIfTI in Hounsfield units."""

from pathlib import Path

import itk
import nibabel as nib
import numpy as np

from fedmed.data.geometry import nifti
from fedmed.data.prepare.case import pseudonym
from fedmed.errors import DataError

POSITION, ORIENTATION, MODALITY, PATIENT = "0020|0032", "0020|0037", "0008|0060", "0010|0020"
GAP_TOLERANCE = 0.1  # of the usual slice distance; scanners round positions, a missing slice doubles the distance
SHEAR_TOLERANCE = 0.01  # sideways shift for each mm of depth; a tilted gantry shows 0.1 and more


def series_in(folder: Path) -> list[tuple[Path, ...]]:
    """Return the files of each DICOM series of one folder (not of its subfolders), in the order of their slices."""
    itk.Object.SetGlobalWarningDisplay(False)  # it warns of a folder without series, which the caller reports
    names = itk.GDCMSeriesFileNames.New()
    names.SetUseSeriesDetails(True)  # two reconstructions under one series UID are two series
    names.SetDirectory(str(folder))
    return [tuple(Path(name) for name in names.GetFileNames(uid)) for uid in sorted(names.GetSeriesUIDs())]


def read_series(files: tuple[Path, ...]) -> tuple[np.ndarray, np.ndarray, str]:
    """Read one CT series. MONAI's ``ITKReader`` does not check that the slices form a volume.

    Args:
        files: the slices in order, or one multi-frame file.

    Returns:
        Array (X, Y, Z) in HU (rescale slope and intercept applied), int16 if that is exact, else float32;
        its affine (4, 4) from indices to mm in RAS; and a pseudonym of the PatientID ("" without one).

    Raises:
        DataError: not CT, unreadable, a single slice, or slices that are missing, doubled, sheared or of different
            orientation.
    """
    try:
        headers = [_header(path) for path in files]
        modality = headers[0].get(MODALITY, "CT")
        if modality != "CT":
            raise DataError(f"DICOM modality is {modality}, not CT")
        if len(files) > 1:
            _check_slices(headers)
        image = _read_pixels(files)
    except RuntimeError as error:
        raise DataError(f"ITK cannot read the series ({str(error).strip().splitlines()[-1]})") from error
    array = itk.array_from_image(image).transpose(2, 1, 0)
    return _shrink(array), ras_affine(image), pseudonym(headers[0].get(PATIENT, ""))


def convert_series(files: tuple[Path, ...], target: Path) -> str:
    """Write one CT series as NIfTI (.nii.gz) and return the pseudonym of its patient; errors as in ``read_series``."""
    array, affine, patient = read_series(files)
    target.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nifti(array, affine), target)
    return patient


def ras_affine(image: itk.Image) -> np.ndarray:
    """Affine (4, 4) of an ITK image; ITK and DICOM count x to the left and y to the back, NIfTI the other way."""
    affine = np.eye(4)
    affine[:3, :3] = itk.array_from_matrix(image.GetDirection()) * np.asarray(image.GetSpacing())
    affine[:3, 3] = np.asarray(image.GetOrigin())
    return np.diag([-1.0, -1.0, 1.0, 1.0]) @ affine


def _header(path: Path) -> dict[str, str]:
    io = itk.GDCMImageIO.New()
    io.SetFileName(str(path))
    io.ReadImageInformation()
    tags = io.GetMetaDataDictionary()
    wanted = (POSITION, ORIENTATION, MODALITY, PATIENT)
    return {tag: str(tags[tag]).strip() for tag in wanted if tags.HasKey(tag)}


def _read_pixels(files: tuple[Path, ...]) -> itk.Image:
    kind = itk.Image[itk.F, 3]  # float: a slope such as 0.5 must not be cut to an integer
    if len(files) == 1:
        reader = itk.ImageFileReader[kind].New(FileName=str(files[0]))
    else:
        reader = itk.ImageSeriesReader[kind].New(FileNames=[str(path) for path in files])
    reader.SetImageIO(itk.GDCMImageIO.New())
    reader.Update()
    return reader.GetOutput()


def _check_slices(headers: list[dict[str, str]]) -> None:
    """A volume has one affine, so its slices must be parallel, equally spaced and not shifted sideways."""
    try:
        positions = np.array([_numbers(h[POSITION]) for h in headers])
        orientations = np.array([_numbers(h[ORIENTATION]) for h in headers])
    except (KeyError, ValueError) as error:
        raise DataError("a slice has no readable position or orientation (0020,0032 and 0020,0037)") from error
    if np.abs(orientations - orientations[0]).max() > 1e-3:
        raise DataError("the slices have different orientations; export each orientation as its own series")
    normal = np.cross(orientations[0, :3], orientations[0, 3:])
    depth = positions @ normal
    gaps = np.diff(depth)
    usual = float(np.median(np.abs(gaps)))
    if usual == 0 or np.abs(gaps).min() < usual * GAP_TOLERANCE:
        raise DataError("two slices lie at the same position; the series holds several phases or copies")
    worst = int(np.abs(np.abs(gaps) - usual).argmax())
    if abs(abs(gaps[worst]) - usual) > GAP_TOLERANCE * usual:
        raise DataError(
            f"slices are missing or unequally spaced: {abs(gaps[worst]):.3g} mm after slice {worst + 1}, "
            f"{usual:.3g} mm elsewhere"
        )
    sideways = positions[-1] - positions[0] - (depth[-1] - depth[0]) * normal
    if np.linalg.norm(sideways) > SHEAR_TOLERANCE * abs(depth[-1] - depth[0]):
        raise DataError("the slices are shifted sideways (tilted gantry); correct the tilt before preparing")


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split("\\")]


def _shrink(array: np.ndarray) -> np.ndarray:
    limits = np.iinfo(np.int16)
    fits = array.min() >= limits.min and array.max() <= limits.max and np.array_equal(array, np.rint(array))
    return array.astype(np.int16 if fits else np.float32)
