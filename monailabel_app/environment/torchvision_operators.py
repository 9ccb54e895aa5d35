"""Let torchvision's default wheel, a CUDA build, be imported beside a CPU build of torch.

Its compiled part does not load there, and then its own Python code fails at `operator torchvision::nms does not exist`.
Declaring the two operators that it decorates at import is enough; calling them stays impossible, and nothing does. A
`.pth` file runs :func:`install` when Python starts; torch is only imported when torchvision is.
"""

import sys
from importlib.abc import MetaPathFinder

_declared = []  # a library of operators lives as long as this object


class _Declare(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        """Declare the operators just before torchvision is looked for; finding it is left to the others."""
        if name == "torchvision":
            sys.meta_path.remove(self)
            import torch

            library = torch.library.Library("torchvision", "DEF")
            for operator in ("nms", "qnms"):
                library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            _declared.append(library)
        return None


def install() -> None:
    """Wait for the import of torchvision."""
    sys.meta_path.insert(0, _Declare())
