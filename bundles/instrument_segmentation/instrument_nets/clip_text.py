"""CLIP's embedding of a sentence, from a folder on this machine; nothing is downloaded."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import BundleInputError

WEIGHTS = ("model.safetensors", "pytorch_model.bin")
TOKENIZERS = (("tokenizer.json",), ("vocab.json", "merges.txt"))
WHERE = (  # its place is not a setting of the site itself
    "in a federation 'words: {indicator_path: clip}' in the site's YAML, for one below the site's data folder; alone "
    "'--indicator_path'; `fedmed fetch-list STUDY` says what a study needs"
)
OTHERS = "or use 'indicator: file' with a vector made elsewhere, or random, onehot or gaussian, which need no files"


def text_embedding(folder: str | Path | None, sentence: str) -> Tensor:
    """The projected embedding (e,), float32, of a sentence; e is 512 for CLIP ViT-B/32 (Radford et al., ICML 2021).

    Args:
        folder: a model of transformers as ``save_pretrained`` writes it, such as ``openai/clip-vit-base-patch32``.
        sentence: at most as many tokens as the encoder takes.

    Raises:
        BundleInputError: the folder or one of its files is missing, damaged, or not a CLIP model.
    """
    return _embedding(_checked(folder), sentence).clone()


@lru_cache(maxsize=8)  # a site asks for its own again with each task
def _embedding(root: Path, sentence: str) -> Tensor:
    model, tokenizer = _load(root)
    with torch.inference_mode():
        taken = tokenizer([sentence], truncation=True, return_tensors="pt")
        return model(input_ids=taken["input_ids"], attention_mask=taken["attention_mask"]).text_embeds[0].float()


def _load(root: Path) -> tuple[Any, Any]:
    """The text encoder, in eval mode, and its tokenizer."""
    from transformers import CLIPTextModelWithProjection, CLIPTokenizerFast

    try:
        model, loading = CLIPTextModelWithProjection.from_pretrained(
            root, local_files_only=True, output_loading_info=True, dtype=torch.float32
        )
        tokenizer = CLIPTokenizerFast.from_pretrained(root, local_files_only=True)
    except Exception as error:  # noqa: BLE001 - readers of four file formats raise kinds of their own
        raise BundleInputError(
            f"the text encoder in {root} cannot be read ({type(error).__name__}: {error}); copy it again, {OTHERS}"
        ) from error
    if missing := sorted(loading["missing_keys"]):
        raise BundleInputError(
            f"the weights in {root} lack {len(missing)} tensors of CLIP's text encoder, such as '{missing[0]}'; copy "
            f"the whole model, {OTHERS}"
        )
    return model.eval(), tokenizer


def _checked(folder: str | Path | None) -> Path:
    needed = (
        f"config.json, weights ({' or '.join(WEIGHTS)}) and a tokenizer (tokenizer.json, or vocab.json and merges.txt)"
        ", as transformers' save_pretrained writes them"
    )
    if folder is None:
        raise BundleInputError(
            f"'indicator: text' needs the folder of a CLIP model with {needed}; name it: {WHERE}; {OTHERS}"
        )
    root = Path(folder)
    missing = [] if (root / "config.json").is_file() else ["config.json"]
    if not any((root / name).is_file() for name in WEIGHTS):
        missing.append(" or ".join(WEIGHTS))
    if not any(all((root / name).is_file() for name in names) for names in TOKENIZERS):
        missing.append("tokenizer.json (or vocab.json and merges.txt)")
    if missing:
        absent = "is a file and no folder" if root.is_file() else "does not exist"
        what = absent if not root.is_dir() else f"lacks {', '.join(missing)}"
        raise BundleInputError(
            f"the folder {root} of the text encoder {what}; it needs {needed} (`fedmed fetch-list STUDY` says where "
            f"they are from); {OTHERS}"
        )
    return root
