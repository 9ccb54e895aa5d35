"""A finished run becomes a complete bundle."""

import torch


def test_skeleton(exported_bundle):
    assert (exported_bundle / "models" / "model.pt").is_file()
    assert all(
        isinstance(v, torch.Tensor) for v in torch.load(exported_bundle / "models/model.pt", weights_only=True).values()
    )
