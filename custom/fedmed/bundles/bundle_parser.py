"""MONAI's parser, quick to make, and what it builds: a bundle's model as named tensors."""

import random
import sys
from collections.abc import Collection, ItemsView, Mapping, Sequence
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from monai.bundle import ComponentLocator, ConfigExpression, ConfigItem, ConfigParser
from monai.bundle.reference_resolver import ReferenceResolver
from monai.bundle.utils import merge_kv
from monai.utils.misc import CheckKeyDuplicatesYamlLoader
from torch import Tensor, nn

from fedmed.errors import BundleError, FedMedError, SharingError, unwrapped
from fedmed.messages.answers import is_number
from fedmed.moved_classes import hint
from fedmed.seeds import derive_seed
from fedmed.yaml_limits import Loader, check_limits

# What MONAI and MONAI Label call the network, and all that happens to an image before it: weights fit these alone.
FITTED = ("network_def", "preprocessing", "pre_transforms")


class BundleParser(ConfigParser):
    """As MONAI's, but quick to make: a run opens the same few files hundreds of times.

    A file is read each time, but what its text means is worked out again only where the text has changed: PyYAML takes
    some 30 ms for a bundle's configuration, and that was most of the time that a job needed to be checked and written.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.locator = _Locator(self.locator.excludes)
        self.ref_resolver = _Resolver()

    def __getitem__(self, id: str | int) -> Any:
        """As MONAI's, which compares an id that is not there with all that are and then says nothing of it."""
        content: Any = self.config
        for key in ReferenceResolver.split_id(id) if id != "" else ():
            if not isinstance(content, dict):
                break
            if key.strip() not in content:
                raise KeyError(f"query key: {key}")
            content = content[key.strip()]
        return super().__getitem__(id)

    @classmethod
    def load_config_file(cls, filepath: Any, **settings: Any) -> dict[str, Any]:
        """Content of a YAML or JSON file, the caller's own copy; errors are MONAI's, PyYAML's and the system's."""
        if settings or not filepath:
            content: dict[str, Any] = super().load_config_file(filepath, **settings)
            return content
        return deepcopy(_content(str(filepath), Path(filepath).read_bytes()))

    @classmethod
    def load_config_files(cls, files: Any, **settings: Any) -> dict[str, Any]:
        """Content of files, merged into the first one as MONAI merges it, by this parser in place of MONAI's."""
        if settings or isinstance(files, dict | str):
            content: dict[str, Any] = super().load_config_files(files, **settings)
            return content
        parser = cls(config={})
        for path in files:
            for key, value in cls.load_config_file(path).items():
                merge_kv(parser, key, value)
        result: dict[str, Any] = parser.get()
        return result

    @staticmethod
    def ids_of_file(path: Path) -> list[str]:
        """Ids of the first level of a YAML or JSON file."""
        return list(map(str, _content(str(path), path.read_bytes())))


# MONAI's reader of YAML, which warns of keys that come twice, with libyaml below it where that is there.
YAML_READER: Any = CheckKeyDuplicatesYamlLoader
if Loader is not yaml.SafeLoader:
    YAML_READER = type("YamlReader", (Loader, CheckKeyDuplicatesYamlLoader), {})


class _Resolver(ReferenceResolver):
    """As MONAI's, which for each item that it resolves looks through all others for import statements."""

    def __init__(self) -> None:
        super().__init__()
        self.items = _Items()

    def reset(self) -> None:
        super().reset()  # type: ignore[no-untyped-call]
        self.items = _Items()


class _Items(dict[str, ConfigItem]):
    """Items by id; a walk through :meth:`items`, which MONAI makes for import statements alone, gives no others."""

    def __init__(self) -> None:
        super().__init__()
        self._imports: dict[str, ConfigItem] = {}

    def __setitem__(self, id: str, item: ConfigItem) -> None:
        super().__setitem__(id, item)
        if isinstance(item, ConfigExpression) and item.is_import_statement(item.config):
            self._imports[id] = item

    def items(self) -> ItemsView[str, ConfigItem]:  # type: ignore[override] # dict_items is no class to name
        """Import statements by id."""
        return self._imports.items()


class _Locator(ComponentLocator):
    """Finder of classes that a configuration names without their module: it looks through MONAI once."""

    def _find_module_names(self) -> list[str]:
        return _names_among(len(sys.modules), tuple(self.excludes))

    def _find_classes_or_functions(self, modnames: Sequence[str] | str) -> dict[str, list[str]]:
        return _classes((modnames,) if isinstance(modnames, str) else tuple(modnames))


@lru_cache(maxsize=8)
def _names_among(loaded: int, excludes: tuple[str, ...]) -> list[str]:
    """Return MONAI's modules among those that are loaded; where there are as many as before, they are the same."""
    names: list[str] = ComponentLocator(excludes)._find_module_names()
    return names


@lru_cache(maxsize=8)
def _classes(modules: tuple[str, ...]) -> dict[str, list[str]]:
    classes: dict[str, list[str]] = ComponentLocator()._find_classes_or_functions(modules)
    return classes


@lru_cache(maxsize=256)
def _content(path: str, content_bytes: bytes) -> dict[str, Any]:
    text = content_bytes.decode(errors="replace")
    if not path.endswith(".json"):
        check_limits(text)
    if moved := hint(text):
        raise BundleError(f"{path}: {moved}")
    json = path.endswith(".json")
    content: dict[str, Any] = ConfigParser.load_config_file(path) if json else YAML_READER(text).get_single_data()
    return content


def merged(base: Path, overlays: Collection[Path] = (), overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Merge configs as MONAI does, and keep what the base knows, or what that refers to.

    Args:
        base: ``inference`` or ``train``.
        overlays: files merged over it, in order; what they say of other configs is left out.
        overrides: plain values, merged last.
    """
    parser = BundleParser(config=BundleParser.load_config_file(base))
    content: dict[str, Any] = parser.config  # type: ignore[assignment] # plain until it is parsed
    known = set(content)
    for values in [*map(BundleParser.load_config_file, overlays), dict(overrides or {})]:
        for key, value in values.items():
            top, *nested = ReferenceResolver.split_id(key.removeprefix("+"))
            if top in content or not (nested or key.startswith("+")):
                merge_kv(parser, key, value)
    wanted = known | set(footprint(content, known))
    return {key: value for key, value in content.items() if key in wanted}


def speaks_of(base: Path, overlay: Path) -> bool:
    """Tell whether an overlay changes anything that a config knows, such as ``inference``."""
    known, changed = BundleParser.load_config_file(base), BundleParser.load_config_file(overlay)
    return any(ReferenceResolver.split_id(key.removeprefix("+"))[0] in known for key in changed)


def unknown(base: Path, names: Collection[str]) -> list[str]:
    """Entries among these that a config does not have: :func:`merged` would leave them out."""
    return sorted(set(names) - set(BundleParser.load_config_file(base)))


def footprint(config: Mapping[str, Any], ids: Collection[str]) -> dict[str, Any]:
    """Top-level entries that ``ids`` are made of: themselves and all that they refer to."""
    entries, waiting = {}, [id for id in ids if id in config]
    while waiting:
        id = waiting.pop()
        if id not in entries:
            entries[id] = config[id]
            names = {
                ReferenceResolver.split_id(ref)[0] for ref in ReferenceResolver.find_refs_in_config(config[id], id)
            }
            waiting += [name for name in names if name in config]
    return entries


def parsed(parser: ConfigParser, id: str) -> Any:
    """Build one item of a bundle's configuration.

    Our own errors come out of MONAI's RuntimeError; of a bundle's own error the text does, not that of a library below.

    Raises:
        BundleError: the id is missing or the component cannot be built; names the id.
    """
    try:
        return parser.get_parsed_content(id)
    except FedMedError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a component's constructor raises is reported with its id
        cause = unwrapped(error)
        if isinstance(cause, FedMedError):
            raise cause from error
        raise BundleError(f"bundle item '{id}' cannot be built: {cause}") from error


def seed_everything(seed: int) -> None:
    """Seed the global generators: weights, dropout, and libraries that draw from them."""
    random.seed(seed)
    np.random.seed(seed)
    if torch.accelerator.is_available():
        torch.manual_seed(seed)
    else:  # the same on a CPU alone, where PyTorch writes down the call for a GPU that may come, which takes longer
        torch.default_generator.manual_seed(seed)


def initial_network(parser: ConfigParser, seed: int) -> nn.Module:
    """Build the bundle's network; the same seed gives the same weights at server and sites."""
    seed_everything(derive_seed(seed, "initial weights"))
    network: nn.Module = parsed(parser, "network")
    return network


def named_tensors(network: nn.Module) -> dict[str, Tensor]:
    """Return copies of all tensors of the network's state, on the CPU."""
    return {name: t.detach().cpu().clone() for name, t in network.state_dict().items()}


def merge(local: Mapping[str, Tensor], received: Mapping[str, Tensor], required: Collection[str]) -> dict[str, Tensor]:
    """Replace a site's tensors by those received, strictly.

    Args:
        required: names that the site's role must receive.

    Raises:
        SharingError: an unknown, missing or wrongly shaped or typed tensor, by name.
    """
    for name in required:
        if name not in received:
            raise SharingError(f"tensor '{name}' is missing from what the server sent; do both use the same job?")
    for name, tensor in received.items():
        if name not in local:
            raise SharingError(f"tensor '{name}' is not in this site's model; do both use the same overlays?")
        if tensor.shape != local[name].shape or tensor.dtype != local[name].dtype:
            here = f"{tuple(local[name].shape)} {local[name].dtype}"
            raise SharingError(f"tensor '{name}' arrived as {tuple(tensor.shape)} {tensor.dtype}, expected {here}")
    return {**local, **received}


def plain_metrics(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Keep finite numbers with a name only: nothing else may travel as a metric."""
    return {name: value for name, value in metrics.items() if isinstance(name, str) and is_number(value)}
