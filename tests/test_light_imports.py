"""MONAI and Ignite do not load what is hardly ever used, and whoever imports it has it."""

import subprocess
import sys

import monai.data
import monai.data.image_reader
import monai.visualize.utils
import numpy as np
import torch
from ignite.handlers import checkpoint

SCRIPT = """
import sys
import fedmed
import fedmed.data.augment
import fedmed.flare.executors
import monai.networks.nets
import monai.visualize.utils
from ignite.handlers import checkpoint
heavy = {"transformers", "matplotlib", "pydicom", "cv2", "requests", "kornia", "scipy.special", "scipy.ndimage",
         "torch.utils.tensorboard", "torch.distributed.fsdp", "pandas", "itk", "scipy.signal", "scipy.stats"}
assert not heavy & set(sys.modules)
assert monai.networks.nets.Transchex and not isinstance([], checkpoint.ZeroRedundancyOptimizer)

import torch
layer = torch.nn.Linear(2, 1)
for kind in (torch.optim.AdamW, torch.optim.SGD):
    optimizer = kind(layer.parameters(), 0.1)
    optimizer.register_step_post_hook(lambda *_: heavy.add(kind))
    layer(torch.ones(1, 2)).sum().backward()
    before = layer.weight.clone()
    optimizer.step()
    assert kind in heavy and layer.weight.grad is not None and not torch.equal(before, layer.weight)
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.zero_grad()
    assert layer.weight.grad is None and "torch._dynamo" not in sys.modules
"""


def test_a_new_process_loads_little_and_the_optimizers_of_pytorch_work():
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_what_is_an_optimizer_of_several_processes_is_known():
    assert not isinstance([], checkpoint.ZeroRedundancyOptimizer)
    import torch.distributed.optim as optim
    from torch.distributed.optim import ZeroRedundancyOptimizer

    one = ZeroRedundancyOptimizer.__new__(ZeroRedundancyOptimizer)
    assert isinstance(one, checkpoint.ZeroRedundancyOptimizer) and not isinstance(3, checkpoint.ZeroRedundancyOptimizer)
    assert optim.DistributedOptimizer is sys.modules["torch.distributed.optim"].DistributedOptimizer


def test_optimizers_step_where_the_compiler_is_loaded():
    layer = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    assert torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1)) == 2 and "torch._dynamo" in sys.modules
    before = layer.weight.clone()
    layer(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    assert not torch.equal(layer.weight, before)


def test_what_monai_loads_later_comes_when_it_is_used():
    """Here, where other tests need it too: a process would load all of it for this alone."""
    assert monai.visualize.utils.plt.get_cmap("gray").name == "gray"
    import matplotlib.pyplot as plt
    from monai.utils import jupyter_utils as notebooks

    assert plt is sys.modules["matplotlib.pyplot"] and plt.figure is monai.visualize.utils.plt.figure
    assert notebooks.has_matplotlib and notebooks.plt.figure is plt.figure
    assert monai.data.UltrasoundConfidenceMap()(np.random.rand(20, 20)).shape == (20, 20)
    assert monai.data.ultrasound_confidence_map.hilbert([1.0, 2.0]).shape == (2,) and "scipy.signal" in sys.modules
    assert isinstance(monai.data.utils.pd.DataFrame({"a": [1]}), monai.data.utils.DataFrame)
    assert monai.data.image_reader.has_itk and monai.data.image_reader.itk.F is sys.modules["itk"].F
    assert monai.data.image_reader.has_pydicom and callable(monai.data.image_reader.pydicom.dcmread)
    from monai.visualize.img2tensorboard import SummaryWriter

    assert not isinstance(3, SummaryWriter)
    from transformers import PretrainedConfig

    assert callable(PretrainedConfig)
