"""Mark in a chest CT what an exported model marks, with the model alone: MONAI and torch, no FedMed, no bundle package.

    python infer_nifti.py covid_ct_segmentation/models/model.ts scan.nii.gz mask.nii.gz

`model.onnx` works too (`pip install onnxruntime`). Voxel size, intensities and windows come from the bundle's
configs/inference.yaml; the mask lies on the scan's own grid.
"""

import sys
from pathlib import Path

import nibabel as nib
import torch
from monai import transforms as mt
from monai.bundle import ConfigParser
from monai.inferers import SlidingWindowInferer

if len(sys.argv) != 4:
    sys.exit(__doc__)
model, scan, target = (Path(name).resolve() for name in sys.argv[1:])
config = ConfigParser.load_config_file(model.parents[1] / "configs" / "inference.yaml")
if model.suffix == ".onnx":
    import onnxruntime

    session = onnxruntime.InferenceSession(model)
    name = session.get_inputs()[0].name

    def network(window):
        return torch.from_numpy(session.run(None, {name: window.numpy()})[0])
else:
    network = torch.jit.load(model, map_location="cpu").eval()
prepare = mt.Compose([
    mt.LoadImaged("image"),
    mt.EnsureChannelFirstd("image"),
    mt.Orientationd("image", "RAS", labels=None),
    mt.Spacingd("image", config["pixdim"]),
    mt.ScaleIntensityRanged("image", *config["hu_range"], 0, 1, clip=True),
])  # fmt: skip
undo = mt.Invertd("pred", prepare, "image", nearest_interp=False)
infer = SlidingWindowInferer(config["window_size"], 1, config["window_overlap"])
with torch.inference_mode():
    case = prepare({"image": scan})
    case["pred"] = infer(case["image"][None], lambda window: torch.softmax(network(window), 1))[0, 1:]
    mask = undo(case)["pred"][0] > config["threshold"]
nib.save(nib.Nifti1Image(mask.numpy().astype("uint8"), mask.affine.numpy()), target)
