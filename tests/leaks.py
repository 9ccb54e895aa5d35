"""Find a site's secrets in captured bytes: images, frames, masks, tables, tensors, paths and names of patients.

Content counts as leaked when 64 bytes in a row of it occur anywhere in the capture, at any offset, unless they say
next to nothing (background). Words count in UTF-8 and UTF-16, however they are cut from a path.
"""

import gzip
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import av
import nibabel as nib
import numpy as np
import pydicom
import torch
from PIL import Image

WINDOW, BLOCK = 64, 32
PART = 1 << 24  # bytes of a capture that are looked at together
PICTURES = (".dcm", ".png", ".jpg")
SHIFT = np.uint64(38)  # to the 26 bits of a number by which the quick look goes
CHANGES = 4  # bytes of a window that differ from the one before, and from the last number's; background has none


@dataclass
class Secrets:
    """What must not be found.

    Attributes:
        words: name -> text.
        content: name -> bytes.
    """

    words: dict[str, str] = field(default_factory=dict)
    content: dict[str, bytes] = field(default_factory=dict)

    def add_site(self, data_root: Path, datalist: Path, extra_words: Iterable[str] = ()) -> "Secrets":
        """Add everything that a site's data folder holds."""
        self.words |= {text: text for text in (str(data_root), *extra_words)}
        for entries in json.loads(datalist.read_text()).values():
            for entry in entries if isinstance(entries, list) else ():
                for value in filter(lambda v: isinstance(v, str), entry.values()):
                    stem = Path(value).name.split(".")[0]
                    self.words |= {value: value, stem: stem}
        for path in data_root.rglob("*.nii*"):
            self.add_image(path)
        for path in data_root.rglob("*"):
            if path.suffix in PICTURES:
                self.add_picture(path)
            elif path.suffix == ".mp4":
                self.add_video(path)
            elif path.suffix == ".csv":
                self.add_table(path)
        return self

    def add_image(self, path: Path) -> None:
        """Add a file as it lies on the disk, unpacked, and its voxels as numbers that a program may hold."""
        raw = path.read_bytes()
        self.content[f"{path.name} file"] = raw
        if path.suffix == ".gz" and not raw.startswith(b"\x1f\x8b"):  # a test has damaged it
            return
        self.content[f"{path.name} unpacked"] = gzip.decompress(raw) if path.suffix == ".gz" else raw
        self._add_numbers(path, np.asanyarray(nib.load(path).dataobj))

    def add_picture(self, path: Path) -> None:
        """Add a radiograph as it lies on the disk, and its pixels as numbers that a program may hold."""
        self.content[f"{path.name} file"] = path.read_bytes()
        pixels = pydicom.dcmread(path).pixel_array if path.suffix == ".dcm" else np.asarray(Image.open(path))
        self._add_numbers(path, pixels)
        self.content[f"{path.name} between 0 and 1"] = (pixels / np.float32(max(1, pixels.max()))).tobytes()

    def add_video(self, path: Path) -> None:
        """Add a video as it lies on the disk, and its first frame of each second as numbers."""
        self.content[f"{path.name} file"] = path.read_bytes()
        with av.open(str(path)) as container:
            seconds = {int(frame.time): frame for frame in reversed(list(container.decode(video=0)))}
        self.add_frames(path.name, np.stack([frame.to_ndarray(format="rgb24") for frame in seconds.values()]))

    def add_frames(self, name: str, frames: np.ndarray) -> None:
        """Add frames (T, H, W, 3) uint8 as numbers that a program may hold, prepared or not."""
        channels = frames.transpose(0, 3, 1, 2)
        self.content[f"{name} pixels"], self.content[f"{name} channels"] = frames.tobytes(), channels.tobytes()
        self.content[f"{name} between 0 and 1"] = (channels / np.float32(255)).tobytes()

    def add_table(self, path: Path, kind: str = "table") -> None:
        """Add the rows of a table of labels or of predictions; its heading is no secret."""
        self.content[f"{path.name} {kind}"] = path.read_bytes().partition(b"\n")[2]

    def add_prepared(self, cache: Path) -> "Secrets":
        """Add videos as they lie prepared in a site's cache."""
        for path in cache.rglob("*.frames"):
            facts = json.loads(path.with_suffix(".json").read_text())
            shape = (facts["frames"], facts["height"], facts["width"], 3)
            self.add_frames(f"prepared {path.stem[:8]}", np.fromfile(path, np.uint8).reshape(shape))
        return self

    def add_tested(self, run: Path) -> "Secrets":
        """Add what a site wrote of single videos when it tested a model."""
        for path in run.rglob("evaluation*/frames/*.csv"):
            self.add_table(path, "of the test")
        return self

    def _add_numbers(self, path: Path, numbers: np.ndarray) -> None:
        for dtype in (np.uint8, np.int16, np.float16, np.float32):
            for order in "CF":
                self.content[f"{path.name} {dtype.__name__} {order}"] = numbers.astype(dtype).tobytes(order)

    def add_tensors(self, name: str, tensors: dict[str, torch.Tensor]) -> "Secrets":
        """Add tensors of 64 bytes or more."""
        for key, tensor in tensors.items():
            self.content[f"{name} {key}"] = tensor.contiguous().numpy().tobytes()
            if not tensor.is_contiguous():  # as it lies in memory
                self.content[f"{name} {key} as stored"] = tensor.movedim(1, -1).contiguous().numpy().tobytes()
        return self

    def found_in(self, capture: bytes) -> list[str]:
        """Return the names of all secrets that the capture holds."""
        lower, absent, result = capture.lower(), [], []
        for name, text in sorted(self.words.items(), key=lambda item: len(item[1])):
            word = text.lower()
            if any(part in word for part in absent):  # where a part of it is not, it is not either
                continue
            if any(word.encode(encoding) in lower for encoding in ("utf-8", "utf-16-le")):
                result.append(name)
            else:
                absent.append(word)
        return result + self._content_in(capture)

    def _content_in(self, capture: bytes) -> list[str]:
        """Names of the content of which a telling window occurs in the capture.

        Such a window holds a whole block of the content, of those that begin at its multiples of ``BLOCK``. So blocks
        are looked for at every offset of the capture, and windows are compared only where one of them is.
        """
        blocks = {name: _hashes(content, BLOCK, step=BLOCK) for name, content in self.content.items()}
        known = np.sort(np.concatenate([*blocks.values(), np.empty(0, np.uint64)]))
        seen = np.zeros(1 << 26, dtype=bool)  # a quick look first, by the first eight bytes: most is no secret
        for content in self.content.values():
            seen[_mixed(np.frombuffer(content, "<u8", len(content) // 8)[:: BLOCK // 8]) >> SHIFT] = True
        there, met = [], []
        for start in range(0, len(capture), PART):
            part = capture[max(0, start - WINDOW) : start + PART + WINDOW]
            words = _words(part)
            places = np.flatnonzero(seen[_mixed(words[: max(0, len(part) - BLOCK + 1)]) >> SHIFT])
            hashes = _hashes_at(words, places, BLOCK)
            if len(places := places[among := _among(hashes, known)]):
                met.append(hashes[among])
                there.append(_hashes_at(words, _around(places, len(part)), WINDOW))
        there, met = (np.sort(np.concatenate([*parts, np.empty(0, np.uint64)])) for parts in (there, met))
        return [name for name, content in self.content.items() if _holds(content, blocks[name], met, there)]


def _holds(content: bytes, blocks: np.ndarray, met: np.ndarray, there: np.ndarray) -> bool:
    """Whether a window of the content, unless it says next to nothing, is one of those that are there."""
    places = np.flatnonzero(_among(blocks, met)) * BLOCK
    if not len(places):
        return False
    starts = _around(places, len(content))
    starts = starts[_informative(content)[starts]]
    return bool(_among(_hashes_at(_words(content), starts, WINDOW), there).any())


def _around(blocks: np.ndarray, size: int) -> np.ndarray:
    """Starts of the windows of so many bytes that hold one of the blocks at these places."""
    marked = np.zeros(size + WINDOW, dtype=bool)
    for back in range(WINDOW - BLOCK + 1):
        marked[blocks - back] = True  # of a block near the beginning at the end, which is cut off
    return np.flatnonzero(marked[: max(0, size - WINDOW + 1)])


def _among(values: np.ndarray, ordered: np.ndarray) -> np.ndarray:
    """Which of the values occur among ordered ones."""
    places = np.searchsorted(ordered, values)
    return ordered[places % len(ordered)] == values if len(ordered) else np.zeros(len(values), dtype=bool)


def _words(content: bytes) -> np.ndarray:
    """The eight bytes at every offset as a number; of the last seven offsets, no meaning."""
    words = np.zeros(len(content) // 8 * 8 + 8, dtype=np.uint64)
    for offset in range(min(8, len(content))):
        part = np.frombuffer(content, "<u8", (len(content) - offset) // 8, offset)
        words[offset::8][: len(part)] = part
    return words


def _mixed(words: np.ndarray) -> np.ndarray:
    mixed = words * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(29)
    return mixed


def _hashed(parts: list[np.ndarray]) -> np.ndarray:
    mixed = np.zeros(len(parts[0]), dtype=np.uint64)
    for part in parts:
        mixed = _mixed(mixed ^ part)
    return mixed


def _hashes_at(words: np.ndarray, places: np.ndarray, size: int) -> np.ndarray:
    """A 64-bit number for ``size`` bytes, a multiple of eight, at each of the places."""
    return _hashed([words[places + offset] for offset in range(0, size, 8)])


def _hashes(content: bytes, size: int, step: int) -> np.ndarray:
    """The same at multiples of ``step``, itself one of eight."""
    words, n = np.frombuffer(content, "<u8", len(content) // 8), max(0, len(content) - size + 1)
    return _hashed([words[place :: step // 8][: -(-n // step)] for place in range(size // 8)])


def _informative(content: bytes) -> np.ndarray:
    """Of the windows at every offset, those that are no background."""
    values = np.frombuffer(content, dtype=np.uint8)
    differs = np.ones(len(values), dtype=bool)
    for back in (1, 4, 8):  # a byte, a float32, a float64
        differs[:back] = False
        differs[back:] &= values[back:] != values[:-back]
    changes = np.cumsum(differs, dtype=np.int32)
    return changes[WINDOW - 1 :] - changes[: len(values) - WINDOW + 1] >= CHANGES
