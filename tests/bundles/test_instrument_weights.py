"""Published weights of the encoder under the names of three libraries."""

import re

import pytest
import torch
from instrument_nets.encoder import PvtEncoder
from instrument_nets.errors import BundleInputError
from instrument_nets.pvt_weights import renamed, start_encoder

TINY = {"dims": (8, 16), "depths": (1, 2), "heads": (1, 2), "reductions": (2, 1), "expansions": (2, 2)}


def original_shapes(dims, depths, reductions, expansions, **_):
    """Tensors of the authors' network (github.com/whai362/PVT, pvt_v2.py)."""
    shapes, before = {"head.weight": (1000, dims[-1]), "head.bias": (1000,)}, 3
    for stage, (d, depth, sr, times) in enumerate(zip(dims, depths, reductions, expansions, strict=True), 1):
        side = 7 if stage == 1 else 3
        pairs = {f"patch_embed{stage}.proj": (d, before, side, side), f"patch_embed{stage}.norm": (d,)}
        for block in range(depth):
            place = f"block{stage}.{block}"
            pairs |= {f"{place}.{name}": (d,) for name in ("norm1", "norm2")}
            pairs |= {f"{place}.attn.q": (d, d), f"{place}.attn.kv": (2 * d, d), f"{place}.attn.proj": (d, d)}
            if sr > 1:
                pairs |= {f"{place}.attn.sr": (d, d, sr, sr), f"{place}.attn.norm": (d,)}
            pairs |= {f"{place}.mlp.fc1": (times * d, d), f"{place}.mlp.dwconv.dwconv": (times * d, 1, 3, 3)}
            pairs |= {f"{place}.mlp.fc2": (d, times * d)}
        pairs[f"norm{stage}"] = (d,)
        shapes |= {f"{n}.weight": shape for n, shape in pairs.items()} | {f"{n}.bias": s[:1] for n, s in pairs.items()}
        before = d
    return shapes


def as_timm(name):
    name = re.sub(r"^patch_embed1\.", "patch_embed.", name)
    name = re.sub(r"^patch_embed(\d)\.", lambda m: f"stages.{int(m[1]) - 1}.downsample.", name)
    name = re.sub(r"^block(\d)\.", lambda m: f"stages.{int(m[1]) - 1}.blocks.", name)
    return re.sub(r"^norm(\d)\.", lambda m: f"stages.{int(m[1]) - 1}.norm.", name).replace("dwconv.dwconv", "dwconv")


@pytest.fixture(scope="module")
def original():
    torch.manual_seed(0)
    return {name: torch.randn(shape) for name, shape in original_shapes(**TINY).items()}


def encoder():
    return PvtEncoder(**TINY).requires_grad_(False)


def test_the_published_file_fits_the_published_encoder():
    shapes = original_shapes((32, 64, 160, 256), (2, 2, 2, 2), (8, 4, 2, 1), (8, 8, 4, 4))
    content = {name: torch.empty(shape, device="meta") for name, shape in shapes.items()}
    with torch.device("meta"):
        needed = PvtEncoder().state_dict()
    assert {n: t.shape for n, t in renamed(content).items()} == {n: t.shape for n, t in needed.items()}


def test_keys_are_the_first_half_of_the_fused_rows(original):
    result, fused = renamed(original), original["block2.1.attn.kv.weight"]
    assert torch.equal(result["layers.1.blocks.1.attention.key.weight"], fused[:16])
    assert torch.equal(result["layers.1.blocks.1.attention.value.weight"], fused[16:])
    assert torch.equal(result["layers.0.blocks.0.attention.key.bias"], original["block1.0.attn.kv.bias"][:8])
    assert torch.equal(result["layers.0.blocks.0.attention.query.weight"], original["block1.0.attn.q.weight"])
    assert torch.equal(result["layers.0.layer_norm.weight"], original["norm1.weight"])
    assert torch.equal(result["layers.0.blocks.0.layer_norm_1.weight"], original["block1.0.norm1.weight"])


def test_files_of_three_libraries_give_the_same(original, tmp_path):
    from safetensors.torch import save_file

    split = {f"pvt_v2.encoder.{n}": t.clone() for n, t in renamed(original).items()} | {
        "classifier.bias": torch.ones(9)
    }
    torch.save({"state_dict": {f"module.{n}": t for n, t in original.items()}}, tmp_path / "original.pth")
    torch.save({as_timm(n): t for n, t in original.items()}, tmp_path / "timm.pth")
    torch.save(split, tmp_path / "pytorch_model.bin")
    save_file(split, tmp_path / "model.safetensors")
    x, outputs = torch.rand(1, 3, 32, 32), []
    for path in sorted(tmp_path.iterdir()):
        outputs.append(start_encoder(encoder(), path)(x)[-1])
    assert len(outputs) == 4 and all(torch.equal(output, outputs[0]) for output in outputs)


def test_no_file_changes_nothing():
    made = encoder()
    before = {name: tensor.clone() for name, tensor in made.state_dict().items()}
    assert all(torch.equal(tensor, before[name]) for name, tensor in start_encoder(made, None).state_dict().items())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: c.pop("block1.0.attn.q.weight"), "'layers.0.blocks.0.attention.query.weight' is missing"),
        (lambda c: c.update({"block1.0.attn.extra": torch.ones(1)}), "attn.extra' is unknown"),
        (lambda c: c.update({"norm1.weight": torch.ones(9)}), r"has shape \(9,\) instead of \(8,\)"),
        (lambda c: c["norm2.bias"].fill_(float("nan")), "not finite"),
        (lambda c: c.update({"block1.0.attn.kv.bias": torch.ones(15)}), "15 rows, not keys and as many values"),
    ],
)
def test_files_that_do_not_fit_are_one_message(original, tmp_path, change, said):
    content = {name: tensor.clone() for name, tensor in original.items()}
    change(content)
    torch.save(content, tmp_path / "a.pth")
    made = encoder()
    before = made.state_dict()["layers.0.layer_norm.bias"].clone()
    with pytest.raises(BundleInputError, match=said) as raised:
        start_encoder(made, tmp_path / "a.pth")
    assert "a.pth" in str(raised.value)
    assert torch.equal(made.state_dict()["layers.0.layer_norm.bias"], before)


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
def test_missing_and_damaged_files_are_one_message(tmp_path, name):
    with pytest.raises(BundleInputError, match="does not exist.*encoder_checkpoint"):
        start_encoder(encoder(), tmp_path / name)
    (tmp_path / name).write_bytes(b"no weights")
    with pytest.raises(BundleInputError, match="not a file of weights.*encoder_checkpoint"):
        start_encoder(encoder(), tmp_path / name)
