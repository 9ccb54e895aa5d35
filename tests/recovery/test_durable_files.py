"""Files are whole or absent."""

import os

import pytest
import torch

from fedmed.durable_files import load_tensors, save_tensors
from fedmed.errors import StateError


def test_round_trip_keeps_dtype_shape_order_and_bits(tmp_path):
    tensors = {
        "b": torch.randn(2, 3, dtype=torch.float64),
        "a": torch.tensor(7, dtype=torch.int64),
        "h": torch.randn(4).half(),
    }
    save_tensors(tmp_path / "x.pt", {"tensors": tensors})
    loaded = load_tensors(tmp_path / "x.pt")["tensors"]
    assert list(loaded) == list(tensors)
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape
        assert torch.equal(loaded[name], tensor)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("No space left")])
def test_full_disk_keeps_the_old_file_and_leaves_nothing_half_written(tmp_path, monkeypatch, error):
    path = tmp_path / "x.pt"
    save_tensors(path, {"v": torch.ones(1)})

    def full(content, stream):
        stream.write(b"half")
        raise error

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(StateError, match="x.pt.*No space left.*nothing was changed"):
        save_tensors(path, {"v": torch.zeros(1)})
    assert torch.equal(load_tensors(path)["v"], torch.ones(1))
    assert os.listdir(tmp_path) == ["x.pt"]
