"""Read DICOM series with ITK and turn them into NIfTI in Hounsfield units."""

from pathlib import Path

import itk
import nibabel as nib
import numpy as np

from fedmed.data.geometry import nifti, to_ras
from fedmed.data.image_size import dicom_size_fault
from fedmed.data.prepare.case import pseudonym
from fedmed.data.prepare.dicom_headers import check_headers
from fedmed.data.prepare.dicom_slices import itk_reads, read_slices
from fedmed.errors import DataError


def read_series(files: tuple[Path, ...]) -> tuple[np.ndarray, np.ndarray, str, list[str]]:
    """Read one CT series. MONAI's ``ITKReader`` does not check that the slices form a volume.

    Args:
        files: the slices in order, or an Enhanced CT file, whose frames may be in any order.

    Returns:
        Array (X, Y, Z) in HU (rescale slope and intercept applied), int16 if that is exact, else float32;
        its affine (4, 4) from indices to mm in RAS; a pseudonym of the PatientID ("" without one); and what is odd.

    Raises:
        DataError: unreadable, too large, or as :func:`fedmed.data.prepare.dicom_headers.check_headers`.
    """
    head, slices, notes = check_headers(files)
    if fault := dicom_size_fault(head, files=len(files)):
        raise DataError(f"the series {fault}")
    patient = pseudonym(str(head.get("PatientID") or ""))
    if not itk_reads(slices):
        array, affine = read_slices(slices)
        return _shrink(array), affine, patient, notes
    try:
        image = _read_pixels(files)
    except RuntimeError as error:
        if "alloc" in str(error):  # ITK's own words, and C++'s
            raise MemoryError(str(error)) from error
        raise DataError(f"ITK cannot read the series ({str(error).strip().splitlines()[-1]})") from error
    array = itk.array_from_image(image).transpose(2, 1, 0)
    return _shrink(array), ras_affine(image), patient, notes


def convert_series(files: tuple[Path, ...], target: Path) -> tuple[str, list[str]]:
    """Write one CT series as NIfTI; return its patient's pseudonym and what is odd; errors as in ``read_series``."""
    array, affine, patient, notes = read_series(files)
    target.parent.mkdir(parents=True, exist_ok=True)
    nib.save(nifti(array, affine), target)
    return patient, notes


def ras_affine(image: itk.Image) -> np.ndarray:
    """Affine (4, 4) of an ITK image to mm in RAS."""
    affine = np.eye(4)
    affine[:3, :3] = itk.array_from_matrix(image.GetDirection()) * np.asarray(image.GetSpacing())
    affine[:3, 3] = np.asarray(image.GetOrigin())
    return to_ras(affine)


def _read_pixels(files: tuple[Path, ...]) -> itk.Image:
    kind = itk.Image[itk.F, 3]  # float: a slope such as 0.5 must not be cut to an integer
    if len(files) == 1:
        reader = itk.ImageFileReader[kind].New(FileName=str(files[0]))
    else:
        reader = itk.ImageSeriesReader[kind].New(FileNames=[str(path) for path in files])
    reader.SetImageIO(itk.GDCMImageIO.New())
    reader.Update()
    return reader.GetOutput()


def _shrink(array: np.ndarray) -> np.ndarray:
    limits = np.iinfo(np.int16)
    fits = array.min() >= limits.min and array.max() <= limits.max and np.array_equal(array, np.rint(array))
    return array.astype(np.int16 if fits else np.float32)
