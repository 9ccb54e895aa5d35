"""Runs that leave an encoder and no finished model, and the bundles that are made of them."""

from collections.abc import Mapping
from dataclasses import dataclass, fields

from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError

PRETRAINED = "pretrained.pt"
EXAMPLE = "pretraining: {overlay: pretrain, encoder: encoder, setting: pretrained}"


@dataclass(frozen=True)
class Pretraining:
    """How a bundle pre-trains: ``pretraining`` of its ``federation.yaml``.

    Attributes:
        overlay: merged last, it makes a training without labels of a training with them.
        encoder: id of the encoder in the configs, and the first part of its tensors' names in every network.
        setting: id of the file that a stand-alone training starts from.
    """

    overlay: str
    encoder: str
    setting: str

    @property
    def prefix(self) -> str:
        """What the names of the encoder's tensors begin with."""
        return f"{self.encoder}."


def pretraining(bundle: Bundle) -> Pretraining | None:
    """How a bundle pre-trains; None if it does not.

    Raises:
        BundleError: its ``federation.yaml`` says it wrongly.
    """
    content = bundle.federation.get("pretraining")
    if content is None:
        return None
    keys = {field.name for field in fields(Pretraining)}
    if not isinstance(content, Mapping) or set(content) != keys or not all(_is_name(v) for v in content.values()):
        raise BundleError(
            f"{bundle.root}/configs/federation.yaml: 'pretraining' is {content!r}. Example:\n    {EXAMPLE}"
        )
    return Pretraining(**content)


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value)
