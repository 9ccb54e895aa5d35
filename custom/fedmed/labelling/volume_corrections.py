"""Readers' masks of 3D scans, a file each."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedmed.data.entry_forms import ImageWithMask
from fedmed.errors import DataError
from fedmed.labelling.correction_plan import NEW, REPLACED, TRAINING, CorrectionPlan, DrawnMask
from fedmed.labelling.masks import has_foreground, mask_bytes, read_grid, read_mask, volume_ml


class VolumeCorrections(CorrectionPlan):
    """An entry names a scan and the file of its mask, which lies on the scan's grid."""

    form = ImageWithMask()
    key = "label"
    unit = "ml"
    healthy = "a scan without disease"

    def read(self, label: Path, image: Path) -> DrawnMask:
        shape, affine = read_grid(image)
        values = read_mask(label, shape, affine)
        return DrawnMask(values, image, volume_ml(values, affine))

    def is_same(self, former: str, mask: DrawnMask) -> bool:
        try:
            return bool(np.array_equal(read_mask(self.site.data_root / former, *read_grid(mask.image)), mask.values))
        except DataError:
            return False

    def put(self, target: str, former: str | None, mask: DrawnMask) -> str:
        self.masks[target] = mask_bytes(mask.values, read_grid(mask.image)[1])
        return REPLACED if former else NEW

    def name_of(self, case: str, entry: Mapping[str, Any]) -> str:
        return f"{case}.nii.gz"

    def kept(self) -> Iterator[Path]:
        labels = (entry["label"] for entry in self.lists[TRAINING])
        return (self.site.data_root / label for label in labels if label not in self.masks)

    def has_foreground(self, file: Path) -> bool:
        return has_foreground(file)
