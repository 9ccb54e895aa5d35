"""Content of an answer: which values may leave at all, their size, and the digest by which it is known again."""

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from fedmed.errors import PrivacyError


def describe(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Name -> dtype and shape, such as ``float32 8×1×3×3×3``."""
    return {name: kind(tensor) for name, tensor in tensors.items()}


def kind(tensor: Tensor) -> str:
    """Dtype and shape in words."""
    shape = "×".join(map(str, tensor.shape)) or "single value"
    return f"{str(tensor.dtype).removeprefix('torch.')} {shape}"


def payload_bytes(content: Any) -> int:
    """Return the size of what is sent, without the transport's own framing, from shapes and texts alone.

    Raises:
        PrivacyError: something that is neither a plain value nor a tensor; nothing else may leave.
    """
    return sum(_size(leaf) for _, leaf in _leaves(content, ""))


def payload_digest(content: Any) -> str:
    """Return the SHA-256 of what is sent: elements, names, dtypes, shapes and order; errors as of `payload_bytes`."""
    digest = hashlib.sha256()
    for place, leaf in _leaves(content, ""):
        described = f"{place} {kind(leaf)}" if isinstance(leaf, Tensor) else place
        digest.update(f"{described}\n".encode())
        digest.update(_body(leaf))
    return digest.hexdigest()


def _leaves(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key in sorted(value, key=str):
            if not isinstance(key, str):
                raise PrivacyError(f"'{place}' has the key {key!r}; only names may be keys. Nothing is sent")
            yield from _leaves(value[key], f"{place}/{key}")
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{place}/{index}")
    elif _may_leave(value):
        yield place, value
    else:
        raise PrivacyError(f"'{place}' is a {type(value).__name__}; only plain values and tensors may leave a site")


def _may_leave(leaf: Any) -> bool:
    if isinstance(leaf, Tensor) or leaf is None or type(leaf) in (bool, int, str):
        return True
    return type(leaf) is float and math.isfinite(leaf)


def _size(leaf: Any) -> int:
    return leaf.numel() * leaf.element_size() if isinstance(leaf, Tensor) else len(json.dumps(leaf).encode())


def _body(leaf: Any) -> bytes | memoryview:
    if not isinstance(leaf, Tensor):
        return json.dumps(leaf).encode()
    return leaf.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
