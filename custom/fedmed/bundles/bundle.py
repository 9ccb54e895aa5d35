"""Open a bundle with overlays, safe overrides from a job and the site's facts."""

import json
import math
import re
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
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
from fedmed.bundles.score import Score, parse_score
from fedmed.bundles.site_facts import config_ids, usable_facts
from fedmed.data.structure import Structure
from fedmed.errors import BundleError, OverrideError

# Facts of time that every configuration may refer to. A federation sets them for each task; here they are those of a
# training that stands alone.
TIME = {"round": 0, "rounds": 1, "steps_before": 0, "steps_total": "$@epoch_length * @max_epochs"}
# MONAI evaluates strings that start with `$`, resolves `@` references and reads files through `%`.
_FORBIDDEN = ("$", "@", "%")
# It also rewrites `#`, `@::` and `%::` anywhere in a text, so a text may hold only the characters of a plain name.
_TEXT = re.compile(r"[A-Za-z0-9 _.,+-]*")
_SEPARATOR = re.compile(r"::|#")
MAX_TEXT = 100  # characters
MAX_ITEMS = 100  # of a list, its inner lists included
MAX_DEPTH = 3  # of lists in lists
_MAX_INT = 2**53  # up to it, JSON readers keep every integer exactly


# An overlay adds to a list (`+train::corrections`) whether or not another one has begun it; that is nothing to warn of.
warnings.filterwarnings("ignore", message="Can't merge entry")


class Bundle:
    """An installed bundle with the overlays and overrides that a job names.

    Args:
        overlays: names of files in ``configs/``, or of FedMed's own overlays for every bundle, merged over ``train``,
            in order.
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
        local = {p.stem: p for p in (self.root / "configs").iterdir() if p.suffix in (".json", ".yaml")}
        if file := local.get(overlay) or SHARED_OVERLAYS.get(overlay):
            return file
        raise BundleError(
            f"bundle '{self.name}' has no overlay '{overlay}'. It has: {', '.join(sorted(local))}; every bundle has: "
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
        merged = {key: ends for block in blocks for key, ends in block.items()}
        if wrong := sorted(str(key) for key, ends in merged.items() if wrong_range(ends)):
            raise BundleError(f"bundle '{self.name}': 'ranges.{wrong[0]}' is not [lowest, highest]; correct it")
        return merged

    @property
    def alike(self) -> list[str]:
        """Settings that decide how the network sees an image, which all roles of a job must have alike."""
        listed: list[str] = self.federation.get("alike", [])
        return listed

    @cached_property
    def score(self) -> Score:
        """Score by which the bundle's models are compared, from ``configs/federation.yaml``."""
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
        """Classes that its models look for; see :func:`fedmed.bundles.metadata_classes.classes_of`."""
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


def check_overrides(overrides: Mapping[str, Any], allowed: Collection[str]) -> dict[str, Any]:
    """Return a copy of ``overrides`` if every entry is harmless.

    MONAI's parser takes what is returned as the plain values that they look like: it evaluates, resolves, reads and
    rewrites nothing in them.

    Args:
        overrides: setting id -> finite number, short plain text (letters, digits, space, ``_ . , + -``), boolean, null,
            or list of these, up to three deep.
        allowed: ids that the bundle lists as overridable. An id with a part that starts with ``_`` (``_target_``) would
            choose what code runs, and is refused even if it is listed.

    Raises:
        OverrideError: an id outside the list, or a value that could execute code, read a file or resolve a
            reference; names the key and the reason.
    """
    if not isinstance(overrides, Mapping):
        raise OverrideError(f"overrides must be 'id: value' pairs, got {type(overrides).__name__}")
    if isinstance(allowed, str):
        raise OverrideError(f"'overridable' must be a list of ids; the bundle's federation.yaml has {_short(allowed)}")
    known = {id for id in allowed if isinstance(id, str) and not _chooses_code(id)}
    for key in overrides:
        if key not in known:
            listed = ", ".join(sorted(known))
            raise OverrideError(f"override '{_short(key, str)}': a job may not set this. It may set: {listed}")
        _check_size(key, overrides[key])
    return {key: _plain(key, value) for key, value in overrides.items()}


def check_ranges(overrides: Mapping[str, Any], ranges: Mapping[str, Any]) -> None:
    """Refuse numbers that no training can use, such as 0 for the size of a voxel or a patch of a million.

    Args:
        overrides: as :func:`check_overrides` returns them.
        ranges: id -> lowest and highest number, both allowed. A list's numbers each count. Where both ends are whole
            numbers, so must these be. An id that is not there has no range.

    Raises:
        OverrideError: a number is outside, or not whole; names the key and the range.
    """
    for key, value in overrides.items():
        if (ends := ranges.get(key)) is None:
            continue
        low, high = ends
        whole = isinstance(low, int) and isinstance(high, int)
        for number in _numbers(value):
            if not low <= number <= high or (whole and number != int(number)):
                kind = "a whole number " if whole else ""
                raise OverrideError(f"override '{key}': {_number(number)} must be {kind}from {low:g} to {high:g}")


def wrong_range(ends: Any) -> bool:
    """Tell whether something is not two finite numbers, the lower one first."""
    return not (
        isinstance(ends, list)
        and len(ends) == 2
        and all(type(end) in (int, float) and math.isfinite(end) for end in ends)
        and ends[0] <= ends[1]
    )


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, list):
        for item in value:
            yield from _numbers(item)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def _chooses_code(id: str) -> bool:
    return any(not part or part.startswith("_") for part in _SEPARATOR.split(id))


def _check_size(key: str, value: Any) -> None:
    """Checked first, and level by level: recursion into a thousand nested lists would exhaust the stack."""
    level, items = [value], 0
    for _ in range(MAX_DEPTH):
        level = [item for each in level if isinstance(each, list) for item in each]
        items += len(level)
    if items > MAX_ITEMS or any(isinstance(item, list) for item in level):
        raise OverrideError(
            f"override '{key}': a list of more than {MAX_ITEMS} items, or more than {MAX_DEPTH} lists deep; no setting "
            "needs that"
        )


def _plain(key: str, value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(key, item) for item in value]
    if isinstance(value, Mapping):
        names = [_short(name, str) for name in value if str(name).startswith("_")] or ["…"]
        raise OverrideError(
            f"override '{key}': holds a mapping (key '{names[0]}'); only plain values may come from a job"
        )
    if isinstance(value, str):
        _check_text(key, value)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value) if isinstance(value, float) else abs(value) > _MAX_INT:
            raise OverrideError(f"override '{key}': {_number(value)} is not a number that a setting can have")
    elif not isinstance(value, (bool, type(None))):
        raise OverrideError(f"override '{key}': {type(value).__name__} is not a number, string, boolean or list")
    return value


def _check_text(key: str, value: str) -> None:
    if value.lstrip().startswith(_FORBIDDEN):
        raise OverrideError(
            f"override '{key}': the text {_short(value)} starts with one of $ @ %, which would run or read something"
        )
    if "/" in value or "\\" in value or ".." in value:
        raise OverrideError(
            f"override '{key}': the text {_short(value)} looks like a path; paths belong to the site, not to a job"
        )
    if len(value) > MAX_TEXT or not _TEXT.fullmatch(value):
        raise OverrideError(
            f"override '{key}': the text {_short(value)} is not a plain name: use at most {MAX_TEXT} letters, "
            "digits, spaces and _ . , + -"
        )


def _short(value: Any, show: Any = ascii) -> str:
    """A value in an error message: ASCII where it is quoted, and never longer than a line."""
    text = show(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _number(value: float) -> str:
    if isinstance(value, int) and abs(value) > _MAX_INT:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def server_bundle(bundle: Bundle, said: Mapping[str, Any]) -> Bundle:
    """Return the bundle with the server's own overlay and settings on top.

    Args:
        said: by :meth:`fedmed.methods.method.Method.server_training`.

    Raises:
        BundleError: it has no such overlay, the overlay does not offer a setting, or what is said is malformed.
    """
    unknown = sorted(set(said) - {"overlay", "settings"})
    if unknown or not isinstance(said.get("overlay"), str):
        raise BundleError(f"training at the server is described by 'overlay' and 'settings', not by {dict(said)!r}")
    overlays = [*bundle.overlays, said["overlay"]]
    return Bundle(bundle.name, overlays, {**bundle.overrides, **said.get("settings", {})})
