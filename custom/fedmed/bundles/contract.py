"""Parts that a bundle must have for a federation, and for pre-training."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from monai.bundle import ConfigParser, ReferenceResolver

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import BundleParser
from fedmed.bundles.find import SHARED_OVERLAYS
from fedmed.bundles.metadata_classes import structures
from fedmed.bundles.site_facts import FACTS, config_ids, missing_fact
from fedmed.errors import BundleError

PRETRAINED = "pretrained.pt"
EXAMPLE = "pretraining: {overlay: pretrain, encoder: encoder, setting: pretrained}"
TRAINING = ("supervised", "unsupervised")
EVERY_SITE = (*TRAINING, "evaluate")
# Id in the configuration -> what it is, by when it is needed.
ALWAYS = {"network": "the network, with its initial weights"}
TO_TRAIN = {
    "train#data": "the cases that a round trains on, a list",
    "train#trainer": "an engine of fedmed.training, or one with its methods",
    "optimizer": "the optimizer, whose state a site keeps over the rounds",
    "batch_size": "cases in a batch, which a site may cut",
    "epoch_length": "optimizer steps of a round",
    "max_epochs": "1 in a federation: a round is one epoch",
}
TO_CHOOSE = {"validate#evaluator": "a MONAI evaluator that scores a model on the validation list"}
TO_SCORE = {
    "evaluate#evaluator": "a MONAI evaluator that runs a model on the testing list",
    "evaluate#recorder": "it has attach(evaluator) and finish() -> scores, and writes what stays at the site",
}
PROVIDER = "metadata#provider"
TO_EXCHANGE = {PROVIDER: "called before training, it returns what other sites get of this one"}
SERVER_TRAINING = "server#training"
TO_TRAIN_MEAN = {SERVER_TRAINING: "it trains the averaged network, see fedmed/training/server_engine.py"}
SITE = ("dataset_dir", "datalist", "device")


@dataclass(frozen=True)
class Pretraining:
    """Pre-training of a bundle: ``pretraining`` of its ``federation.yaml``."""

    overlay: str  # merged last, it makes a training without labels of a training with them
    encoder: str  # id of the encoder in the configs, and the first part of its tensors' names in every network
    setting: str  # id of the file that a stand-alone training starts from

    @property
    def prefix(self) -> str:
        """Beginning of the names of the encoder's tensors."""
        return f"{self.encoder}."


def pretraining(bundle: Bundle) -> Pretraining | None:
    """Pre-training of a bundle; None without one.

    Raises:
        BundleError: its ``federation.yaml`` says it wrongly.
    """
    content = bundle.federation.get("pretraining")
    if content is None:
        return None
    keys = {field.name for field in fields(Pretraining)}
    named = isinstance(content, Mapping) and all(isinstance(name, str) and name for name in content.values())
    if not named or set(content) != keys:
        raise BundleError(
            f"{bundle.root}/configs/federation.yaml: 'pretraining' is {content!r}. Example:\n    {EXAMPLE}"
        )
    return Pretraining(**content)


@dataclass(frozen=True)
class Use:
    """Purpose for which a bundle is opened."""

    role: str | None = None  # of the site; None at the server
    labels: bool = True  # the kind of task has labels, by which models are scored
    chooses: bool = True  # a model is chosen by the sites' validation lists
    scores: bool = True  # the result is scored on their testing lists
    exchanges: bool = False  # sites send values of their images before they train
    trains_mean: bool = False  # the server trains the mean of each round


def faults(bundle: Bundle, use: Use, settings: Mapping[str, str] | None = None) -> list[str]:
    """Everything that a bundle lacks, each with the place to put it; empty for a sound one. No component is built.

    Args:
        settings: ids that its kind of task needs in the configuration -> what they are.
    """
    return [*_of_federation(bundle), *_of_metadata(bundle), *_of_configs(bundle, use, settings or {})]


def needed(use: Use) -> dict[str, str]:
    """Ids that the configuration must have."""
    ids = dict(ALWAYS)
    if use.role in TRAINING:
        ids |= TO_TRAIN
    if use.labels and use.chooses and use.role == "supervised":
        ids |= TO_CHOOSE
    if use.labels and use.scores and use.role in EVERY_SITE:
        ids |= TO_SCORE | {"evaluation_dir": FACTS["evaluation_dir"].what}
    if use.exchanges and use.role in TRAINING:
        ids |= TO_EXCHANGE
    if use.trains_mean:
        ids |= TO_TRAIN_MEAN
    return ids


def _of_configs(bundle: Bundle, use: Use, settings: Mapping[str, str]) -> Iterator[str]:
    try:
        parser = bundle.parser()
    except BundleError as error:
        yield str(error)
        return
    over = f" or an overlay ({', '.join(bundle.overlays)})" if bundle.overlays else ""
    missing = {id: what for id, what in {**needed(use), **settings}.items() if parser.get(id) is None}
    yield from (f"configs/train.yaml{over} has no '{id}': {what}" for id, what in missing.items())
    if use.exchanges and use.role in TRAINING:
        yield from unknown_parts(parser, PROVIDER)
    if use.role is not None:
        ids = config_ids(parser)  # what only training needs is asked for above
        lacking = [name for name in FACTS if name not in ids and (FACTS[name].optional or name in SITE)]
        yield from (fault for name in lacking if (fault := missing_fact(name, ids)))


def unknown_parts(parser: ConfigParser, id: str) -> Iterator[str]:
    """Yield what a component of the configuration refers to and nothing defines, as an overlay for every bundle may."""
    for value in (parser.get(id) or {}).values():
        for part in ReferenceResolver.match_refs_pattern(value) if isinstance(value, str) else ():
            if part not in parser:
                yield f"configs/train.yaml has no '{part}', which '{id}' is made of; docs/bundles.md says what it is"


def _of_federation(bundle: Bundle) -> Iterator[str]:
    path, content = "configs/federation.yaml", bundle.federation
    if not content.get("score"):
        yield f"{path} has no 'score': by what models are compared"
    else:
        yield from _error_of(lambda: bundle.score)
    if not isinstance(content.get("sharing"), Mapping):
        yield f"{path} has no 'sharing': groups of tensors that stay at the sites, for each class of network"
    else:
        groups = content["sharing"].items()
        lacking = [name for name, patterns in groups if not isinstance(patterns, Mapping) or "full" not in patterns]
        yield from (f"{path}: 'sharing.{network}' has no group 'full': []" for network in lacking)
    yield from _error_of(lambda: bundle.ranges)
    ids = _ids(bundle)
    for key in ("overridable", "alike", "ranges"):
        listed = content.get(key) or []
        if unknown := sorted(set(map(str, listed if isinstance(listed, (list, dict)) else [])) - ids):
            yield f"{path}: '{key}' lists '{unknown[0]}', which no file in configs/ has; correct or remove it"
    if not isinstance(content.get("calibration", ""), str):
        yield f"{path}: 'calibration' is {content['calibration']!r}; name one tensor of the network"
    yield from _error_of(lambda: _pretrains(bundle))


def _pretrains(bundle: Bundle) -> None:
    made = pretraining(bundle)
    if made and BundleParser.load_config_file(bundle.config_file(made.overlay)).get("kind") is None:
        raise BundleError(
            f"configs/{made.overlay}.yaml has no 'kind', though 'pretraining' in federation.yaml names the overlay; "
            "write 'kind: encoder' there"
        )


def _of_metadata(bundle: Bundle) -> Iterator[str]:
    try:
        version: Any = bundle.version
    except (OSError, ValueError, KeyError, TypeError):
        version = None
    if not isinstance(version, str) or not version:
        yield "configs/metadata.json has no 'version', a text"
    else:
        yield from _error_of(lambda: structures(bundle.metadata, bundle.root))


def _error_of(read: Callable[[], object]) -> Iterator[str]:
    try:
        read()
    except BundleError as error:
        yield str(error)


def _ids(bundle: Bundle) -> set[str]:
    """Ids of the first level in all files that a training may be merged of."""
    configs = [path for path in (bundle.root / "configs").iterdir() if path.suffix in (".yaml", ".json")]
    files = [*configs, *SHARED_OVERLAYS.values()]
    ids = (BundleParser.ids_of_file(path) for path in files if path.stem not in ("federation", "metadata"))
    return {id.split("::")[0].removeprefix("+") for of_file in ids for id in of_file}
