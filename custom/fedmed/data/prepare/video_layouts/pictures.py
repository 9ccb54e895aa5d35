"""Single pictures with a mask each, such as a simulator draws them: Sisvse (Yoon et al., MICCAI 2022) and its like."""

from collections.abc import Mapping
from pathlib import Path

from fedmed.data.prepare.folder import visible_files
from fedmed.data.prepare.video_layouts.layout import PARTS, Layout, Recording, rows_of_text, whole
from fedmed.data.video.folder_source import PICTURES
from fedmed.errors import DataError

MASKS = ("masks", "semantic_masks")
VALUES = "mask_values.csv"
NAMES = ("background", "shaft", "wrist", "jaw")


class Pictures(Layout):
    """``images/manual_syn/a.png`` with ``masks/manual_syn/a.png``, or ``semantic_masks`` as Sisvse calls them.

    Each folder with pictures becomes an entry; pictures without a mask are left out. ``mask_values.csv`` beside
    ``images`` (columns ``value,part``: background, shaft, wrist or jaw) says what stands for what in the masks; without
    it they hold 0 to 3.
    """

    about = "images/… and masks/… (or semantic_masks/…) of the same names: single pictures, not frames of a video"
    mask_hint = f", or write {VALUES} beside images: columns value,part with background, shaft, wrist or jaw"

    def __init__(self) -> None:
        self.values: Mapping[int, int] = PARTS

    def fits(self, folder: Path) -> bool:
        return (folder / "images").is_dir() and any((folder / name).is_dir() for name in MASKS)

    def find(self, folder: Path) -> list[Recording]:
        if (folder / VALUES).is_file():
            self.values = read_values(folder / VALUES)
        masks = next((folder / name for name in MASKS if (folder / name).is_dir()), None)
        if masks is None or not (folder / "images").is_dir():
            raise DataError(f"{folder}: single pictures lie in 'images', and their masks in 'masks'; name them so")
        by_folder = ((place, [file for file in files if file.suffix.lower() in PICTURES])
                 for place, files in visible_files(folder / "images", ()))  # fmt: skip
        return [_recording(folder, place, files, masks) for place, files in by_folder if files]

    def values_of(self, file: Path) -> Mapping[int, int]:
        return self.values


def read_values(path: Path) -> dict[int, int]:
    """Value of a mask -> 0 to 3, of a table with the columns ``value`` and ``part``.

    Raises:
        DataError: other columns, a value that is not 0 to 255 or comes twice, or another part.
    """
    (_, header), *rows = rows_of_text(path, ",")
    if header != ["value", "part"]:
        raise DataError(f"{path}: has columns {header}; use value,part")
    values: dict[int, int] = {}
    for line, cells in rows:
        value, part = whole(path, line, cells[0]), cells[-1]
        if part not in NAMES or not 0 <= value <= 255 or value in values:
            raise DataError(f"{path}: line {line}: {cells}; use each value of 0 to 255 once, and {', '.join(NAMES)}")
        values[value] = NAMES.index(part)
    return values


def _recording(folder: Path, place: Path, files: list[Path], masks: Path) -> Recording:
    """A folder of pictures, those with a mask; their place in the list stands for their second."""
    below = place.relative_to(folder / "images")
    pairs = [(file, masks / below / f"{file.stem}.png") for file in files]
    pairs = [(file, mask) for file, mask in pairs if mask.is_file()]
    case = below.as_posix() if below.parts else "images"
    if not pairs:
        fault = (
            f"none of its {len(files)} pictures has a mask in {masks / below}; masks have the names of their pictures"
        )
        return Recording(case, place, fault=fault)
    frames = tuple((file.name, float(number)) for number, (file, _) in enumerate(pairs))
    by_folder = tuple((float(number), (mask,)) for number, (_, mask) in enumerate(pairs))
    return Recording(case, place, frames=frames, single=True, masks=by_folder)
