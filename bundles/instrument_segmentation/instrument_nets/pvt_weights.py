"""Start the encoder from published weights of PVT v2, whatever names their tensors have."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from torch import Tensor

from .encoder import PvtEncoder
from .errors import BundleInputError
from .weights import check_fit, read_tensors

ABOVE = re.compile(r"^(module\.|model\.|backbone\.|pvt_v2\.|encoder\.)+")
LAST = re.compile(r"^(head|classifier)\.")  # of 1000 classes
BLOCK = (
    (r"norm1", "layer_norm_1"),
    (r"norm2", "layer_norm_2"),
    (r"attn\.sr", "attention.spatial_reduction"),
    (r"attn\.norm", "attention.layer_norm"),
    (r"attn\.(q|kv|proj)", r"attention.\1"),
    (r"mlp\.fc1", "mlp.dense1"),
    (r"mlp\.fc2", "mlp.dense2"),
    (r"mlp\.dwconv(\.dwconv)?", "mlp.dwconv.dwconv"),
)
ORIGINAL = re.compile(r"^(patch_embed|block|norm)(\d+)\.(.+)$")  # of whai362/PVT; stages are counted from 1
TIMM = re.compile(r"^stages\.(\d+)\.(downsample\.|blocks\.|norm\.)(.+)$")


def start_encoder(encoder: PvtEncoder, path: str | Path | None) -> PvtEncoder:
    """Fill the encoder from a file of weights; its layer of 1000 classes is left out.

    Args:
        encoder: of the same sizes.
        path: a ``.pth`` of the paper's authors, a file of timm, or ``model.safetensors`` or ``pytorch_model.bin`` of
            transformers; None = nothing is loaded.

    Raises:
        BundleInputError: the file is missing or unreadable, or a tensor is missing, unknown, of another shape or not
            finite; the encoder stays as it was.
    """
    if path is None:
        return encoder
    given = renamed(_read(Path(path)), path)
    hint = "give weights of PVT v2-b0 (pvt_v2_b0.pth), or set it to null"
    check_fit(given, encoder.state_dict(), f"encoder_checkpoint {path} does not fit the encoder", hint)
    encoder.load_state_dict(given, strict=True)
    return encoder


def _read(path: Path) -> dict[str, Tensor]:
    remedy = "correct 'encoder_checkpoint', or set it to null: then training begins with random weights"
    if path.suffix != ".safetensors" or not path.is_file():
        return read_tensors(path, remedy)
    from safetensors import SafetensorError  # transformers brings it
    from safetensors.torch import load_file

    try:
        return dict(load_file(path))
    except (OSError, SafetensorError) as error:
        raise BundleInputError(f"{path} is not a file of weights ({type(error).__name__}); {remedy}") from error


def renamed(content: Mapping[str, Tensor], path: str | Path = "checkpoint") -> dict[str, Tensor]:
    """Tensors under the names of :class:`PvtEncoder`, the fused ``kv`` in two.

    Rows of ``kv`` are those of the keys, then those of the values.

    Raises:
        BundleInputError: a fused tensor whose rows cannot be halved.
    """
    mapped: dict[str, Tensor] = {}
    for name, tensor in content.items():
        bare = ABOVE.sub("", name)
        if LAST.match(bare):
            continue
        for new, part in _split(_new_name(bare), tensor, path):
            mapped[new] = part
    return mapped


def _split(name: str, tensor: Tensor, path: str | Path) -> Iterator[tuple[str, Tensor]]:
    if ".attention.kv." not in name:
        yield name.replace(".attention.q.", ".attention.query."), tensor
        return
    if tensor.shape[0] % 2:
        raise BundleInputError(f"{path}: tensor '{name}' has {tensor.shape[0]} rows, not keys and as many values")
    keys, values = tensor.chunk(2, dim=0)
    yield name.replace(".kv.", ".key."), keys.contiguous()
    yield name.replace(".kv.", ".value."), values.contiguous()


def _new_name(name: str) -> str:
    """The name of a tensor in transformers' model; one that is not known stays as it is, and is reported."""
    if match := ORIGINAL.match(name):
        part, stage, rest = match[1], int(match[2]) - 1, match[3]
        return f"layers.{stage}." + {"patch_embed": _embedding, "block": _block, "norm": _norm}[part](rest)
    if name.startswith("patch_embed."):  # of timm's first stage
        return "layers.0." + _embedding(name.removeprefix("patch_embed."))
    if match := TIMM.match(name):
        part = {"downsample.": _embedding, "blocks.": _block, "norm.": _norm}[match[2]]
        return f"layers.{match[1]}." + part(match[3])
    return name


def _embedding(rest: str) -> str:
    return "patch_embedding." + re.sub(r"^norm\.", "layer_norm.", rest)


def _norm(rest: str) -> str:
    return f"layer_norm.{rest}"


def _block(rest: str) -> str:
    number, _, inner = rest.partition(".")
    for old, new in BLOCK:
        inner, count = re.subn(rf"^{old}(?=\.(weight|bias)$)", new, inner)
        if count:
            break
    return f"blocks.{number}.{inner}"
