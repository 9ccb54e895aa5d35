"""The selection of channels by hand, and the vectors that describe a site."""

import json

import pytest
import torch
from instrument_nets.channel_selection import ChannelSelection
from instrument_nets.errors import BundleInputError
from instrument_nets.indicators import gaussian, make_indicator, one_hot, prompt, random_vector
from torch.testing import assert_close

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.bundles.site_facts import attributes_fault, attributes_needed

MAPS = torch.tensor([[[[1.0, 3], [2, 0]], [[4, 4], [0, 0]]]])
WORDS = {"procedure": "nephrectomy"}
CLOSE = {"atol": 1e-6, "rtol": 1e-6}


def test_gates_by_hand():
    made, seen = ChannelSelection(2, (1.0, -1.0, 0.5)), []
    with torch.no_grad():
        made.linear.weight.copy_(torch.tensor([[0.5, 0, 1, 0, 0], [0, 0.25, 0, 1, 2]]))
        made.linear.bias.zero_()
    made.gate.register_forward_hook(lambda *call: seen.append(call[1:]))
    result = made(MAPS)
    assert_close(seen[0][0][0], torch.tensor([[1.75, 0.5]]), **CLOSE)
    assert_close(seen[0][1], torch.tensor([[0.85195280, 0.62245933]]), **CLOSE)
    expected = [[[1.8519528, 5.5558584], [3.7039056, 0]], [[6.4898373, 6.4898373], [0, 0]]]
    assert_close(result, torch.tensor([expected]), **CLOSE)


def test_gates_strengthen_by_at_most_twice_and_closed_ones_change_nothing():
    made, maps = ChannelSelection(6, torch.randn(4)), torch.randn(3, 6, 5, 4)
    result = made(maps).abs()
    assert bool((result >= maps.abs()).all()) and bool((result <= 2 * maps.abs()).all())
    torch.nn.init.constant_(made.linear.bias, -200.0)
    assert_close(made(maps), maps, rtol=0, atol=0)


def test_the_prompt_alone_shifts_channels():
    made = ChannelSelection(2, (1.0, -1.0, 0.5), prompt_only=True)
    assert {name: tuple(tensor.shape) for name, tensor in made.state_dict().items()} == {"linear.weight": (2, 3)}
    with torch.no_grad():
        made.linear.weight.copy_(torch.tensor([[1.0, 0, 2], [0, 1, 0]]))
    assert_close(made(MAPS), MAPS + torch.tensor([2.0, -1])[None, :, None, None])
    assert made.gate is None


def test_the_vector_is_a_constant():
    made = ChannelSelection(2, (1.0, -1.0, 0.5))
    assert set(made.state_dict()) == {"linear.weight", "linear.bias"} and not made.indicator.requires_grad
    for wrong in ((), ((1.0, 2.0),), (float("nan"),)):
        with pytest.raises(ValueError, match="one row of finite numbers"):
            ChannelSelection(2, torch.tensor(wrong))


def test_bell_curves_by_hand():
    expected = torch.tensor([0.003866, 0.162991, 0.892813, 0.635391, 0.05875, 0.000706, 0.000001, 0])
    assert_close(gaussian(1, 4, 8), expected, atol=1e-6, rtol=0)
    assert gaussian(3, 4, 8)[-1] == 1 and gaussian(0, 1, 8)[0] == 1


def test_places_among_the_sites():
    assert one_hot(1, 4).tolist() == [0, 1, 0, 0] and one_hot(1, 2, 4).tolist() == [0, 1, 0, 0]
    assert one_hot(None, 4).tolist() == [0.25] * 4
    assert_close(gaussian(None, 4, 8), torch.stack([gaussian(k, 4, 8) for k in range(4)]).mean(0))
    for index, count in ((4, 4), (-1, 4), (0, 0)):
        with pytest.raises(BundleInputError, match="site_index"):
            one_hot(index, count)
    with pytest.raises(BundleInputError, match="at least 4"):
        one_hot(0, 4, 3)


def test_random_vectors_belong_to_a_name_and_a_seed():
    first = random_vector("north", 16)
    assert_close(first.norm(), torch.tensor(1.0))
    assert torch.equal(first, random_vector("north", 16))
    assert not torch.equal(first, random_vector("south", 16)) and not torch.equal(first, random_vector("north", 16, 1))


@pytest.mark.parametrize("provider", ["random", "onehot", "gaussian"])
def test_providers_without_files(provider):
    vectors = [make_indicator(provider, f"s{k}", WORDS, k, 4, width=8) for k in range(4)]
    assert all(vector.shape == (8,) and vector.dtype == torch.float32 for vector in vectors)
    assert len({tuple(vector.tolist()) for vector in vectors}) == 4


def test_vectors_of_files(tmp_path):
    torch.save(torch.tensor([1.0, 2.0]), tmp_path / "a.pt")
    (tmp_path / "a.txt").write_text("1, 2\n")
    for name in ("a.pt", "a.txt"):
        assert make_indicator("file", path=tmp_path / name, width=2).tolist() == [1, 2]
    with pytest.raises(BundleInputError, match="gives 2 numbers where the model has been made for 512"):
        make_indicator("file", path=tmp_path / "a.txt", width=512)
    (tmp_path / "b.txt").write_text("1 two")
    torch.save(torch.zeros(2, 2), tmp_path / "b.pt")
    for name, said in (("b.txt", "cannot be read"), ("b.pt", "one row"), ("c.pt", "does not exist")):
        with pytest.raises(BundleInputError, match=said):
            make_indicator("file", path=tmp_path / name)


def test_the_sentence_about_a_site():
    assert prompt("B", WORDS) == "This is the Local site B model and the surgery type is nephrectomy"
    with pytest.raises(BundleInputError, match="site B does not say its procedure.*words"):
        make_indicator("text", "B", {}, path="unused")
    with pytest.raises(BundleInputError, match="use one of text, file"):
        make_indicator("sound")


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """A tiny CLIP text encoder with a tokenizer of single letters, as transformers writes them."""
    from transformers import CLIPTextConfig, CLIPTextModelWithProjection

    folder = tmp_path_factory.mktemp("clip")
    letters = [chr(code) for code in range(33, 127)]
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    (folder / "vocab.json").write_text(json.dumps({word: number for number, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 77}))
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    ends = {"bos_token_id": len(words) - 2, "eos_token_id": len(words) - 1, "pad_token_id": len(words) - 1}
    torch.manual_seed(0)
    config = CLIPTextConfig(vocab_size=len(words), projection_dim=12, **sizes, **ends)
    CLIPTextModelWithProjection(config).save_pretrained(folder)
    return folder


def test_embeddings_of_a_folder(clip):
    first, again, other = (make_indicator("text", name, WORDS, path=clip, width=12) for name in ("A", "A", "B"))
    assert first.shape == (12,) and first.dtype == torch.float32 and bool(torch.isfinite(first).all())
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert ChannelSelection(4, first)(torch.rand(1, 4, 2, 2)).shape == (1, 4, 2, 2)
    with pytest.raises(BundleInputError, match="gives 12 numbers where the model has been made for 512"):
        make_indicator("text", "A", WORDS, path=clip, width=512)


def test_a_hospital_names_its_encoder_by_a_word(clip):
    bundle = Bundle("instrument_segmentation", ["demo"], {"indicator": "text", "indicator_width": 12})
    words = {**WORDS, "indicator_path": clip.name}
    facts = {"device": "cpu", "dataset_dir": str(clip.parent), "site_name": "A"}
    made = parsed(bundle.parser(**facts, site_words=words), "network_def::indicator")
    assert torch.equal(made, make_indicator("text", "A", WORDS, path=clip, width=12))
    needed = attributes_needed(bundle.parser(**facts, site_words=WORDS))
    assert "no 'indicator_path' (the text encoder's folder, below the data folder)" in attributes_fault(needed, WORDS)
    with pytest.raises(BundleInputError, match="config.json of the text encoder is a file and no folder"):
        make_indicator("text", "A", WORDS, path=clip / "config.json")


@pytest.mark.parametrize(
    ("left_out", "said"),
    [
        (None, r"words: \{indicator_path: clip\}"),
        ("all", "does not exist"),
        ("config.json", "lacks config.json"),
        ("model.safetensors", "lacks model.safetensors or pytorch_model.bin"),
        ("vocab.json", r"lacks tokenizer.json \(or vocab.json and merges.txt\)"),
    ],
)
def test_a_missing_text_encoder_is_one_message(clip, tmp_path, left_out, said):
    for path in [] if left_out == "all" else clip.iterdir():
        if path.name != left_out:
            (tmp_path / path.name).symlink_to(path)
    folder = None if left_out is None else tmp_path / "none" if left_out == "all" else tmp_path
    with pytest.raises(BundleInputError, match=said) as raised:
        make_indicator("text", "A", WORDS, path=folder)
    assert all(word in str(raised.value) for word in ("save_pretrained", "file", "random", "onehot", "gaussian"))
    assert left_out is None or str(folder) in str(raised.value)


@pytest.mark.parametrize("damaged", ["config.json", "model.safetensors", "vocab.json"])
def test_a_damaged_text_encoder_is_one_message(clip, tmp_path, damaged):
    for path in clip.iterdir():
        (tmp_path / path.name).write_bytes(b"{" if path.name == damaged else path.read_bytes())
    with pytest.raises(BundleInputError, match="cannot be read.*indicator: file"):
        make_indicator("text", "A", WORDS, path=tmp_path)


def test_weights_without_the_projection_are_refused(clip, tmp_path):
    from safetensors.torch import load_file, save_file

    for path in clip.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    content = load_file(tmp_path / "model.safetensors")
    content.pop("text_projection.weight")
    save_file(content, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BundleInputError, match="lack 1 tensors.*text_projection"):
        make_indicator("text", "A", WORDS, path=tmp_path)
