"""The exported model in formats that need neither Python classes nor FedMed: TorchScript and ONNX."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from monai.bundle import ConfigParser, ckpt_export
from torch import Tensor, nn

from fedmed.errors import ExportError
from fedmed.export.folder import CONFIGS, METADATA, MODELS
from fedmed.optional import needs

PART = ".part.pt"
TOLERANCE = 1e-4  # largest difference to PyTorch, as a part of the largest output
BATCHES = (1, 2)  # the number of windows is free


@dataclass(frozen=True)
class Part:
    """Part of a bundle that is written in other formats.

    Attributes:
        id: of the network in the configs.
        weights: its file in ``models/``.
        prefix: of the names of its tensors there; other tensors are left out.
        name: of the files that are made.
        output: what it computes, in ONNX.
    """

    id: str = "network_def"
    weights: str = "model.pt"
    prefix: str = ""
    name: str = "model"
    output: str = "pred"

    def state(self, folder: Path) -> dict[str, Tensor]:
        """Its tensors under its own names."""
        tensors = torch.load(folder / MODELS / self.weights, map_location="cpu", weights_only=True)
        return {k.removeprefix(self.prefix): tensor for k, tensor in tensors.items() if k.startswith(self.prefix)}


MODEL = Part()


def write_torchscript(folder: Path, config: Path, part: Part = MODEL) -> str:
    """Write ``models/<name>.ts`` from the exported configs and weights; return in words that it computes the same.

    A network that TorchScript cannot read, as those of transformers, is traced: the file then takes images of one size.

    Raises:
        ExportError: MONAI cannot convert the network, or the result computes something else than PyTorch.
    """
    path, state = folder / MODELS / f"{part.name}.ts", folder / MODELS / PART
    torch.save(part.state(folder), state)
    with _explained("TorchScript"), quiet():
        traced = _convert(folder, config, part, path, state)
        _strip_torchscript(path)
        script = torch.jit.load(str(path), map_location="cpu")
    state.unlink()
    _compare(folder, config, script, "TorchScript", part)
    size = ", for images of this size alone" if traced else ""
    return f"`{part.name}.ts` computes what PyTorch does, within {TOLERANCE:.0e} of the largest output{size}."


def _convert(folder: Path, config: Path, part: Part, path: Path, state: Path) -> bool:
    """Write TorchScript by MONAI; return whether it had to be traced."""
    places: dict[str, Any] = {"net_id": part.id, "filepath": str(path), "ckpt_file": str(state)}
    places |= {"bundle_root": str(folder), "meta_file": str(folder / CONFIGS / METADATA), "config_file": str(config)}
    try:
        ckpt_export(**places)
    except Exception:  # noqa: BLE001 - what the compiler cannot read raises many kinds; tracing needs no such reading
        shape = list(open_network(folder, config, part)[1](2).shape)
        ckpt_export(**places, use_trace=True, input_shape=shape)
        return True
    return False


def write_onnx(folder: Path, config: Path, part: Part = MODEL) -> str:
    """Write ``models/<name>.onnx`` (any number of windows or images); return in words that it computes the same.

    Raises:
        ExportError: PyTorch cannot convert the network, or ONNX Runtime computes something else on the CPU.
    """
    with needs("onnx", "exports to ONNX"):
        import onnx  # noqa: F401 - PyTorch asks for it, and for onnxscript, in the middle of an export
        import onnxruntime  # only needed here, and slow to import
        import onnxscript  # noqa: F401

    network, example = open_network(folder, config, part)
    with _explained("ONNX"), quiet():
        made: Any = torch.onnx.export(
            network,
            (example(2),),
            input_names=["image"],
            output_names=[part.output],
            dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
            dynamo=True,
            verbose=False,
        )
        content = _strip_onnx(made.model_proto)
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (folder / MODELS / f"{part.name}.onnx").write_bytes(content)
    _compare(folder, config, lambda x: torch.from_numpy(session.run(None, {"image": x.numpy()})[0]), "ONNX", part)
    return f"`{part.name}.onnx`, in ONNX Runtime on the CPU: the same, within {TOLERANCE:.0e}."


def open_network(folder: Path, config: Path, part: Part = MODEL) -> tuple[nn.Module, Callable[[int], Tensor]]:
    """The exported network with its weights, and a function: number of windows or images -> input (N, C, …) in 0…1."""
    parser = ConfigParser()
    parser.read_config(str(config))
    parser.read_meta(str(folder / CONFIGS / METADATA))
    parser["bundle_root"] = str(folder)
    network = parser.get_parsed_content(part.id)
    network.load_state_dict(part.state(folder), strict=True)
    image = parser["_meta_#network_data_format#inputs#image"]
    if not all(isinstance(size, int) for size in image["spatial_shape"]):
        raise ExportError(f"metadata.json: the input's spatial_shape is {image['spatial_shape']}; give whole numbers")
    shape = (image["num_channels"], *image["spatial_shape"])
    return network.eval(), lambda n: torch.rand(n, *shape, generator=torch.Generator().manual_seed(n))


@torch.no_grad()
def _compare(folder: Path, config: Path, other: Callable[[Tensor], Tensor], what: str, part: Part) -> None:
    network, example = open_network(folder, config, part)
    for n in BATCHES:
        expected, output = network(example(n)), other(example(n))
        if output.shape != expected.shape:
            raise ExportError(f"{what}: the output's shape is {tuple(output.shape)}, not {tuple(expected.shape)}")
        largest = float((output - expected).abs().max() / expected.abs().max().clamp(min=1e-6))
        if not largest <= TOLERANCE:
            raise ExportError(
                f"{what} differs from PyTorch by {largest:.1e} of the largest output; allowed: {TOLERANCE:.0e}"
            )


def _strip_torchscript(path: Path) -> None:
    """Leave out the debugging records: they hold this machine's paths, which may name a person."""
    reader = torch._C.PyTorchFileReader(str(path))  # torch's own archive, whose records are aligned
    records = {name: reader.get_record(name) for name in reader.get_all_records()}
    del reader
    writer = torch._C.PyTorchFileWriter(str(path))
    for name, content in records.items():
        if not name.endswith(".debug_pkl") and name not in ("version", "byteorder", ".data/serialization_id"):
            writer.write_record(name, content, len(content))
    writer.write_end_of_file()


def _strip_onnx(model: Any) -> bytes:
    """Leave out what the exporter notes for debugging, stack traces with this machine's paths among it."""
    graph = model.graph
    for part in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info, *graph.initializer):
        del part.metadata_props[:]
        part.doc_string = ""
    content: bytes = model.SerializeToString(deterministic=True)
    return content


@contextlib.contextmanager
def _explained(what: str) -> Iterator[None]:
    try:
        yield
    except OSError:
        raise
    except Exception as error:  # noqa: BLE001 - compilers raise many kinds
        raise ExportError(f"the network cannot be converted to {what}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Converters warn of what they leave out; what counts is compared afterwards."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
