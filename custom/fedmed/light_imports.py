"""Keep MONAI and Ignite from loading at once what they need for things that are hardly ever used.

transformers, for a network that nobody uses here; Matplotlib, pandas, ITK, OpenCV, requests and parts of SciPy;
pydicom, for DICOM inside NIfTI; and the distributed optimizers of PyTorch, which compile themselves and bring sympy.
They would cost each process of server and sites some six seconds and 200 MB. All of them are there for whoever imports
them. So is PyTorch's compiler, another second, which every optimizer would load to ask it to keep away. And ITK loads
no PyTorch, two seconds and 200 MB, where only files are read.
"""

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache, wraps
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

NOTEBOOKS = "monai.utils.jupyter_utils"
WITHOUT = {  # a package -> whoever can do without it
    "transformers": "monai.networks.nets.transchex",
    "pydicom": "nibabel.nifti1",  # it leaves DICOM in the header of a NIfTI file as the bytes that it is
    "matplotlib": NOTEBOOKS,  # gets it later, see _plot_later
    "requests": "pydicom.data.download",  # of pydicom's own example files
}
LATER = {"torch.distributed.optim": "ignite.handlers.checkpoint"}
OPTIONAL = "monai.utils.module"  # its function optional_import loads what MONAI can do without
PLOTS = "matplotlib.pyplot"
OPTIONAL_LATER = {"cv2", "itk", "matplotlib", PLOTS, "pandas", "pydicom", "requests", "torch.utils.tensorboard"} | {
    f"scipy.{part}"
    for part in ("ndimage", "optimize", "signal", "sparse", "sparse.csgraph", "sparse.linalg", "spatial")
}
OPTIMIZERS = "torch.optim.optimizer"
COMPILER = "torch._dynamo"
ITK = "itk.support.helpers"
CHECKED = "ZeroRedundancyOptimizer"  # Ignite looks whether an object is one
_lock = threading.Lock()


def _being_loaded(name: str) -> bool:
    module = sys.modules.get(name)
    return module is not None and getattr(module.__spec__, "_initializing", False)


class LightImports:  # of importlib.abc, whose loading takes 20 ms, nothing is needed
    """Finds no module of ``WITHOUT`` and a ``LaterModule`` for those of ``LATER``, while their user is loaded.

    Those of ``CHANGES`` are changed once they are loaded.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return nothing where the next finder is to be asked.

        Raises:
            ModuleNotFoundError: the user can do without.
        """
        user = WITHOUT.get(name.partition(".")[0])
        if user and _being_loaded(user):
            raise ModuleNotFoundError(f"{name} is not loaded for {user}", name=name)
        if name in CHANGES:
            return _changed(PathFinder.find_spec(name, path), CHANGES[name])
        if name not in LATER or not _being_loaded(LATER[name]):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is not None:
            spec.loader = _LaterLoader()  # type: ignore[assignment]
        return spec


def _changed(spec: ModuleSpec | None, change: Callable[[ModuleType], None]) -> ModuleSpec | None:
    """Let a module be changed when it has been loaded."""
    if spec is None or spec.loader is None:
        return spec
    load: Callable[[ModuleType], None] = spec.loader.exec_module

    def load_and_change(loaded: ModuleType) -> None:
        load(loaded)
        change(loaded)

    spec.loader.exec_module = load_and_change  # type: ignore[method-assign, assignment]
    return spec


def _load_optional_later(monai: ModuleType) -> None:
    """Let MONAI's ``optional_import`` load what is in ``OPTIONAL_LATER`` when something of it is used."""
    at_once = monai.optional_import
    there = {name for name in OPTIONAL_LATER if importlib.util.find_spec(name.partition(".")[0])}

    def optional_import(module: str, *args: Any, **kwargs: Any) -> tuple[Any, bool]:
        """As MONAI's own, but some modules are loaded later."""
        if module not in there:
            return at_once(module, *args, **kwargs)

        def load() -> Any:
            if module == "matplotlib":  # MONAI asks it for pyplot, which its notebooks would have loaded
                importlib.import_module(PLOTS)
            return at_once(module, *args, **kwargs)[0]

        return OptionalLater(load), True

    monai.optional_import = optional_import  # type: ignore[attr-defined]


def _plot_later(notebooks: ModuleType) -> None:
    """Let MONAI's plots in notebooks load Matplotlib when they draw."""
    notebooks.has_matplotlib = PathFinder.find_spec("matplotlib") is not None  # type: ignore[attr-defined]
    notebooks.plt = OptionalLater(lambda: importlib.import_module(PLOTS))  # type: ignore[attr-defined]


def _step_without_compiler(optimizers: ModuleType) -> None:
    """Let optimizers ask PyTorch's compiler to keep away only where it is loaded: elsewhere nothing is compiled.

    A PyTorch that has no such functions any more stays as it is.
    """
    import torch

    decorate, hide = getattr(optimizers, "_use_grad_for_differentiable", None), getattr(torch, "_disable_dynamo", None)
    if decorate is None or hide is None:
        return

    def use_grad_for_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
        """As PyTorch's own, which loads the compiler."""

        @wraps(step)
        def plain(self: Any, *args: Any, **kwargs: Any) -> Any:
            with torch.set_grad_enabled(self.defaults["differentiable"]):
                return step(self, *args, **kwargs)

        return _where_compiled(decorate(step), plain)

    optimizers._use_grad_for_differentiable = use_grad_for_differentiable  # type: ignore[attr-defined]
    hidden = hide(lambda: None).__code__
    for name, method in list(vars(optimizers.Optimizer).items()):
        if getattr(method, "__code__", None) is hidden:
            setattr(optimizers.Optimizer, name, _where_compiled(method, method.__wrapped__))


def _where_compiled(careful: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is ``careful`` where the compiler is loaded, and ``plain`` elsewhere."""

    @wraps(careful)
    def either(*args: Any, **kwargs: Any) -> Any:
        return (careful if COMPILER in sys.modules else plain)(*args, **kwargs)

    return either


def _without_tensors(helpers: ModuleType) -> None:
    """Let ITK's filters know of tensors only where PyTorch is loaded: they take those of later as any other array."""
    helpers._HAVE_TORCH = "torch" in sys.modules  # type: ignore[attr-defined]


CHANGES = {
    OPTIONAL: _load_optional_later,
    NOTEBOOKS: _plot_later,
    OPTIMIZERS: _step_without_compiler,
    ITK: _without_tensors,
}


class OptionalLater:
    """Stands for a module, a class or a function that is loaded when it is used."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = cache(load)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._load()(*args, **kwargs)

    def __instancecheck__(self, instance: object) -> bool:
        return isinstance(instance, self._load())


class _LaterLoader:
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return LaterModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Leave it empty."""


class LaterModule(ModuleType):
    """Stands for a module that is loaded when something of it is used."""

    def __getattr__(self, name: str) -> Any:
        """Return what the module has under a name that this one lacks: what the machinery of imports sets is here."""
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        if name == CHECKED and self.__name__ in LATER and _being_loaded(LATER[self.__name__]):
            return _Checked
        with _lock:
            LATER.pop(self.__name__, None)
            if sys.modules.get(self.__name__) is self:
                del sys.modules[self.__name__]
        return getattr(importlib.import_module(self.__name__), name)


class _OnlyOfTheLoaded(type):
    def __instancecheck__(cls, instance: object) -> bool:
        """Look without loading: where its module is not loaded, there is no such object."""
        module = sys.modules.get("torch.distributed.optim.zero_redundancy_optimizer")
        return module is not None and isinstance(instance, getattr(module, CHECKED))


class _Checked(metaclass=_OnlyOfTheLoaded):
    """Stands for the class ``CHECKED`` in Ignite."""


def keep_imports_light() -> None:
    """Begin to do so; a second call changes nothing."""
    if not any(isinstance(finder, LightImports) for finder in sys.meta_path):
        sys.meta_path.insert(0, LightImports())
