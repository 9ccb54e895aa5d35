"""MONAI Label's folder of studies, without its ways to change the images themselves."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from monailabel.datastore.dicom import DICOMWebDatastore
from monailabel.datastore.local import LocalDatastore
from monailabel.interfaces.exception import MONAILabelError, MONAILabelException
from monailabel.utils.others.generic import remove_file

from fedmed.errors import DataError, FedMedError
from fedmed.labelling.masks import NIFTI, read_frame_mask, read_grid, read_mask
from fedmed.labelling.uploads import check_upload
from fedmed_label.routes import is_plain

PICTURES = (".png", ".jpg", ".jpeg")


class LinkedDatastore(LocalDatastore):
    """A datastore whose images are links to the hospital's own files.

    MONAI Label follows a link before it writes: to upload an image under an id that exists would overwrite the
    hospital's file, and to delete an image would delete it. It also uses ids and tags unchecked in paths: a label with
    the tag ``..`` would be written over its image. All of this is refused here; other uploads work as usual.

    Attributes:
        models: asked when a label is saved for the names and versions of the models being served; they become part of
            the label's information, from which a correction's record is made.
    """

    models: Callable[[], Mapping[str, str]] = staticmethod(dict)

    def add_image(self, image_id: str, image_filename: str, image_info: dict[str, Any]) -> str:
        """Store an uploaded image.

        Raises:
            MONAILabelException: the id belongs to an image of the studies, or is not a plain name.
            DataError: it is no image, or too large.
        """
        image_id = image_id or self._to_id(os.path.basename(image_filename))[0]
        check_plain(image_id, "id")
        self._refuse(image_id, "replaced")
        with removed_if_refused(image_filename):
            check_upload(Path(image_filename))
        return super().add_image(image_id, image_filename, image_info)

    def remove_image(self, image_id: str) -> None:
        """Remove an uploaded image and its labels.

        Raises:
            MONAILabelException: the id belongs to an image of the studies.
        """
        self._refuse(image_id, "deleted")
        super().remove_image(image_id)

    def save_label(self, image_id: str, label_filename: str, label_tag: str, label_info: dict[str, Any]) -> str:
        """Store a label, with the models that were served when it was drawn.

        Raises:
            MONAILabelException: the tag is not a plain name.
            DataError: it is no image or too large, or the mask of a scan does not fit on the scan's grid, or that of a
                picture on its pixels; the study stays open.
        """
        check_plain(label_tag, "tag")
        with removed_if_refused(label_filename):
            check_upload(Path(label_filename))
            _check_grid(Path(self.get_image_uri(image_id)), Path(label_filename))
        return super().save_label(image_id, label_filename, label_tag, {**label_info, "served": dict(self.models())})

    def _refuse(self, image_id: str, what: str) -> None:
        folder = self._datastore.image_path()
        endings = [pattern.removeprefix("*") for pattern in self._extensions]
        if any(os.path.islink(os.path.join(folder, f"{image_id}{ending}")) for ending in endings):
            raise MONAILabelException(
                MONAILabelError.INVALID_INPUT,
                f"image '{image_id}' is a file of the studies folder and is not {what} from here; use another name",
            )


def _check_grid(image: Path, label: Path) -> None:
    """Of a mask with the scan's shape the values are its reader's affair: other apps have more than one structure."""
    if image.suffix.lower() in PICTURES:
        read_frame_mask(label, image)
    if not image.name.lower().endswith(NIFTI):
        return
    shape, affine = read_grid(image)
    try:
        fits = read_grid(label)[0] == shape
    except DataError:  # not a 3D NIfTI file: it may be a mask all the same
        fits = False
    if not fits:
        read_mask(label, shape, affine)


def check_plain(name: str, what: str) -> None:
    """Ids and tags become parts of paths: they must not lead out of the work folder."""
    if not is_plain(name):
        raise MONAILabelException(
            MONAILabelError.INVALID_INPUT, f"the {what} {name!r} is not a plain name; use another"
        )


@contextlib.contextmanager
def removed_if_refused(path: str) -> Iterator[None]:
    """Remove a file that a client sent where it is refused: MONAI Label removes those alone that it took."""
    try:
        yield
    except FedMedError:
        remove_file(path)
        raise


class DicomDatastore(DICOMWebDatastore):
    """A DICOM server's series, of which the labels that are sent are looked at before they become DICOM."""

    def save_label(
        self, image_id: str, label_filename: str, label_tag: str, label_info: dict[str, Any], label_id: str = ""
    ) -> str:
        """Store a label.

        Raises:
            MONAILabelException: the id or tag is not a plain name.
            DataError: it is no image, or too large.
        """
        check_plain(image_id, "id")
        check_plain(label_tag, "tag")
        if not label_filename.endswith(".bin"):  # of OHIF: the values alone, which are put on the series' own grid
            with removed_if_refused(label_filename):
                check_upload(Path(label_filename))
        return super().save_label(image_id, label_filename, label_tag, label_info, label_id)
