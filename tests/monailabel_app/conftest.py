"""The parts of the label app that run without MONAI Label, and a tiny bundle for them."""

import json
import sys
from pathlib import Path

import pytest
import torch

APP = Path(__file__).resolve().parents[2] / "monailabel_app"
if str(APP) not in sys.path:
    sys.path.insert(0, str(APP))


@pytest.fixture
def make_bundle(tmp_path):
    """Return a function: folder's name -> a bundle whose network is one linear layer."""

    def make(name: str = "lesion_ct_segmentation", axes: int = 3, place: str = "bundles") -> Path:
        root = tmp_path / place / name
        (root / "configs").mkdir(parents=True)
        (root / "models").mkdir()
        image = {"num_channels": 1, "spatial_shape": [8] * axes}
        pred = {"num_channels": 2, "channel_def": {"0": "background", "1": "lesion"}}
        data = {"version": "0.1.0", "network_data_format": {"inputs": {"image": image}, "outputs": {"pred": pred}}}
        (root / "configs" / "metadata.json").write_text(json.dumps(data))
        network = {"_target_": "torch.nn.Linear", "in_features": 3, "out_features": 2}
        (root / "configs" / "inference.yaml").write_text(json.dumps({"network_def": network}))
        torch.save(torch.nn.Linear(3, 2).state_dict(), root / "models" / "model.pt")
        return root

    return make
