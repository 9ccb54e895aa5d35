"""Files are whole or absent."""

import json
import os
import zipfile

import pytest
import torch

from fedmed.durable_files import check_digest, load_tensors, save_tensors, sealed, unsealed
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


def flip(path, at, count=64):
    """Invert some bytes of a file in their place."""
    content = bytearray(path.read_bytes())
    content[at : at + count] = bytes(255 - byte for byte in content[at : at + count])
    path.write_bytes(content)


@pytest.mark.parametrize("place", [0.02, 0.3, 0.5, 0.7, 0.98])
def test_flipped_bytes_are_noticed_wherever_they_are(tmp_path, place):
    path = tmp_path / "x.pt"
    save_tensors(path, {"tensors": {"w": torch.randn(5000)}, "meta": {"round": 3}})
    flip(path, int(path.stat().st_size * place))
    with pytest.raises(StateError, match="x.pt is damaged"):
        load_tensors(path)


def test_a_file_without_a_digest_is_read_and_its_checksums_are_looked_at(tmp_path):
    path = tmp_path / "x.pt"
    torch.save({"w": torch.arange(5000.0)}, path)
    assert not check_digest(path)
    assert torch.equal(load_tensors(path)["w"], torch.arange(5000.0))
    flip(path, path.stat().st_size // 2)
    with pytest.raises(StateError, match="x.pt is damaged: the checksum of"):
        load_tensors(path)


def test_other_programs_read_what_carries_a_digest(tmp_path):
    path = tmp_path / "x.pt"
    save_tensors(path, {"w": torch.arange(9)})
    assert check_digest(path)
    assert torch.equal(torch.load(path, mmap=True, weights_only=True)["w"], torch.arange(9))
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None and archive.comment.startswith(b"fedmed-sha256:")


def test_plain_values_carry_their_digest(tmp_path):
    kept = json.loads(json.dumps(sealed({"rounds": {"a": 3}, "score": 0.1})))
    assert unsealed(kept) == {"rounds": {"a": 3}, "score": 0.1} == unsealed({"rounds": {"a": 3}, "score": 0.1})
    with pytest.raises(ValueError, match="not what was written"):
        unsealed({**kept, "score": 0.2})
