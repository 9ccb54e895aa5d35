"""Open a bundle with overlays, safe overrides from a job and the site's facts."""

import json
import sys
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from monai.bundle import ConfigParser
from torch import nn

from fedmed.aggregation.sharing import NORM, norm_layers
from fedmed.bundles.bundle_parser import BundleParser
from fedmed.bundles.find import SHARED_OVERLAYS, bundle_digest, check_name, find_bundle
from fedmed.bundles.metadata_classes import classes_of
from fedmed.bundles.overrides import check_overrides, check_ranges, wrong_range
from fedmed.bundles.score import Score, parse_score
from fedmed.bundles.site_facts import config_ids, usable_facts
from fedmed.data.structure import Structure
from fedmed.errors import BundleError, OverrideError

# An overlay adds to a list (`+train::corrections`) whether or not another one has begun it; that is nothing to warn of.
warnings.filterwarnings("ignore", message="Can't merge entry")
# Facts of time that every configuration may refer to. A federation sets them for each task; here they are those of a
# training that stands alone.
TIME = {"round": 0, "rounds": 1, "steps_before": 0, "steps_total": "$@epoch_length * @max_epochs"}


class Bundle:
    """An installed bundle with the overlays and overrides that a job names.

    Args:
        name: folder name of the bundle.
        overlays: names of files in ``configs/``, or of FedMed's own overlays for every bundle, merged over ``train``,
            in order.
        overrides: plain values from the job, checked against the bundle's own allow-list.
        site_bundles: the site's folder of bundles, if it has one.
    """

    def __init__(
        self,
        name: str,
        overlays: Sequence[str] = (),
        overrides: Mapping[str, Any] | None = None,
        site_bundles: Path | None = None,
    ) -> None:
        self.name = name
        self.root = find_bundle(name, site_bundles)
        self.overlays = list(overlays)
        self.files = [self.config_file(overlay) for overlay in ["train", *overlays]]
        self.overrides = check_overrides(overrides or {}, self.overridable)
        self._check_types()
        check_ranges(self.overrides, self.ranges)
        # The bundle's own package must be importable by the class paths in its configs.
        if str(self.root) not in sys.path:
            sys.path.insert(0, str(self.root))

    def config_file(self, overlay: str) -> Path:
        """The file of this name, YAML or JSON: in ``configs/``, else among the overlays that every bundle can use."""
        check_name(overlay, "overlay")
        own = {p.stem: p for p in (self.root / "configs").iterdir() if p.suffix in (".json", ".yaml")}
        if found := own.get(overlay) or SHARED_OVERLAYS.get(overlay):
            return found
        raise BundleError(
            f"bundle '{self.name}' has no overlay '{overlay}'. It has: {', '.join(sorted(own))}; every bundle has: "
            f"{', '.join(sorted(SHARED_OVERLAYS))}"
        )

    @cached_property
    def federation(self) -> dict[str, Any]:
        """``configs/federation.yaml``: score, what jobs may override, and the sharing groups of each network."""
        path = self.root / "configs" / "federation.yaml"
        if not path.is_file():
            raise BundleError(f"{path} is missing; it lists 'overridable' settings and 'sharing' groups")
        content: dict[str, Any] = BundleParser.load_config_file(path)
        return content

    @cached_property
    def overridable(self) -> list[str]:
        """Settings that a job may change: those that ``federation.yaml`` lists, and those that its overlays do."""
        listed: Any = self.federation.get("overridable", [])
        if not isinstance(listed, list):
            return listed  # type: ignore[no-any-return]  # check_overrides says what is wrong with it
        of_overlays = (BundleParser.load_config_file(path).get("overridable", []) for path in self.files[1:])
        return [*listed, *(key for keys in of_overlays for key in keys)]

    @cached_property
    def ranges(self) -> dict[str, list[float]]:
        """Of numbers of these settings, the lowest and the highest: what ``federation.yaml`` and overlays say."""
        said = [self.federation, *(BundleParser.load_config_file(path) for path in self.files[1:])]
        blocks = [content.get("ranges") or {} for content in said]
        if not all(isinstance(block, dict) for block in blocks):
            raise BundleError(f"bundle '{self.name}': 'ranges' must be lines such as 'batch_size: [1, 4096]'")
        found = {key: ends for block in blocks for key, ends in block.items()}
        if wrong := sorted(str(key) for key, ends in found.items() if wrong_range(ends)):
            raise BundleError(f"bundle '{self.name}': 'ranges.{wrong[0]}' is not [lowest, highest]; correct it")
        return found

    @property
    def alike(self) -> list[str]:
        """Settings that decide how the network sees an image, which all roles of a job must have alike."""
        listed: list[str] = self.federation.get("alike", [])
        return listed

    @cached_property
    def score(self) -> Score:
        """What the bundle's models are compared by, from ``configs/federation.yaml``."""
        return parse_score(self.federation.get("score"), self.root / "configs" / "federation.yaml")

    @cached_property
    def overlay_kind(self) -> str | None:
        """Kind of task that an overlay makes of the bundle, the last that names one; see :mod:`fedmed.kinds`."""
        named = (BundleParser.load_config_file(path).get("kind") for path in reversed(self.files[1:]))
        return next((kind for kind in named if kind is not None), None)

    @property
    def kind(self) -> str | None:
        """Kind of task with these overlays, as the bundle's files name it."""
        return self.overlay_kind or self.federation.get("kind")

    @property
    def calibration(self) -> str | None:
        """Tensor of the model that is set to the labelled sites' mean ``val_temperature`` when it is kept, if any."""
        return self.federation.get("calibration")

    def encoder_file(self, network: nn.Module) -> str | None:
        """What a file holds from which the network's encoder can be filled, in words; None if it cannot."""
        return (self.federation.get("encoder") or {}).get(type(network).__name__)

    def _check_types(self) -> None:
        """YAML reads 1e-4 and a,b as texts; refuse them here rather than in every site's first step."""
        defaults = BundleParser.load_config_files([str(path) for path in self.files]) if self.overrides else {}
        for key, value in self.overrides.items():
            default = defaults.get(key)
            if type(default) in (int, float) and type(value) not in (int, float):
                raise OverrideError(f"override '{key}': {value!r} is not a number (in YAML write 1.0e-4, not 1e-4)")
            if isinstance(default, list) and isinstance(value, str):
                raise OverrideError(f"override '{key}': {value!r} is not a list; write [{value}]")

    def groups(self, network: nn.Module) -> dict[str, list[str]]:
        """Sharing groups of a network, ``norm`` too: group -> patterns of the names that are not shared."""
        kind, groups = type(network).__name__, dict(self.federation.get("sharing", {}))
        if kind not in groups:
            raise BundleError(f"bundle '{self.name}': federation.yaml has no sharing groups for {kind}")
        return {NORM: norm_layers(network), **groups[kind]}

    @cached_property
    def digest(self) -> str:
        """Hash of the bundle's configs and code, and of the overlays for every bundle; equal at server and sites."""
        return bundle_digest(self.root, SHARED_OVERLAYS)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """``configs/metadata.json``."""
        content: dict[str, Any] = json.loads((self.root / "configs" / "metadata.json").read_text(encoding="utf-8"))
        return content

    @cached_property
    def classes(self) -> list[Structure]:
        """What its models look for; see :func:`fedmed.bundles.metadata_classes.classes_of`."""
        return classes_of(self.parser().get("classes"), self.metadata, self.root)

    @property
    def version(self) -> str:
        """Version from the bundle's metadata."""
        version: str = self.metadata["version"]
        return version

    def parser_without_site(self, **facts: Any) -> ConfigParser:
        """The same for a machine that is no site, such as the server: ``at_site`` is false."""
        return self.parser(at_site=False, **facts)

    def parser(self, **facts: Any) -> ConfigParser:
        """Return a fresh parser; ``facts`` come from this machine and win over everything.

        Args:
            facts: of :data:`fedmed.bundles.site_facts.FACTS`. One that this bundle has no use for is left out.

        Raises:
            BundleError: the merged configuration cannot be read, or a fact is unknown or missing in it.
        """
        parser = BundleParser()
        try:
            parser.read_config([str(path) for path in self.files])
            parser.read_meta(str(self.root / "configs" / "metadata.json"))
        except (OSError, ValueError, KeyError, yaml.YAMLError) as error:
            raise BundleError(f"bundle '{self.name}' with overlays {self.overlays}: {error}") from error
        time = {key: value for key, value in TIME.items() if key not in parser.get()}
        parser.update({"bundle_root": str(self.root), **time, **self.overrides})
        where = f"bundle '{self.name}' with overlays {self.overlays}"
        parser.update(usable_facts(facts, config_ids(parser), where))
        return parser
