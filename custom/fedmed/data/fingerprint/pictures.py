"""Facts about a picture for a site's fingerprint."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from fedmed.data.fingerprint.facts import ImageFacts, Read, fields, levels, thinned
from fedmed.data.image_size import file_fault
from fedmed.errors import DataError, first_line


def measure(files: Mapping[str, Path], classes: Sequence[str], read: Read | None) -> ImageFacts:
    """Look at a picture as the bundle's reader opens it.

    Args:
        files: ``image``.
        classes: not needed.
        read: the reader.

    Raises:
        DataError: it cannot be read.
    """
    path = files["image"]
    if read is None:
        raise DataError("the bundle has no reader of pictures ('validate#preprocessing')")
    if fault := file_fault(path):
        raise DataError(f"{path} {fault}")
    try:
        image = read(path)
    except Exception as error:  # noqa: BLE001 - the reader is the bundle's, its decoders have exceptions of their own
        raise DataError(f"{path} cannot be read ({first_line(error)})") from error
    values = thinned(image)
    return ImageFacts(size=tuple(map(int, image.shape)), intensity=levels(values), grid=fields(values))
