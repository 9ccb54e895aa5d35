"""Load the files of a case, naming the file when that fails."""

import logging
import warnings
from collections.abc import Hashable, Mapping
from typing import Any

from monai.config import KeysCollection
from monai.transforms import LoadImage, MapTransform

from fedmed.errors import DataError, first_line


def hush_dicom_decoder() -> None:
    """Silence MONAI 1.6's warning at every ``LoadImage`` that a GPU decoder, which only DICOM needs, is missing."""
    logging.getLogger("monai.data.nvimgcodec_pydicom_plugin").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message="NvImgCodecPydicomReader")


class LoadCased(MapTransform):
    """Read images as channel-first float32 :class:`monai.data.MetaTensor` with their affine, shape (1, X, Y, Z).

    Args:
        keys: entries that hold paths.
        allow_missing_keys: accept cases without some of them, such as a case without a mask.

    Raises:
        DataError: a file cannot be read; names the file and the reader's complaint.
    """

    def __init__(self, keys: KeysCollection, allow_missing_keys: bool = True) -> None:
        super().__init__(keys, allow_missing_keys)
        hush_dicom_decoder()
        self.loader = LoadImage(image_only=True, ensure_channel_first=True)

    def __call__(self, data: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
        case = dict(data)
        for key in self.key_iterator(case):
            try:
                case[key] = self.loader(case[key])
            except Exception as error:  # noqa: BLE001 - each file format's reader has exceptions of its own
                raise DataError(
                    f"{data[key]}: the {key} cannot be read ({first_line(error)}); restore or remove it"
                ) from error
        return case
