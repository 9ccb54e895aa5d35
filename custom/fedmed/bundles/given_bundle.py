"""A bundle that somebody gives, opened without running a word of it.

MONAI's format lets a configuration run code: expressions after ``$``, any callable as ``_target_``, files after ``%``,
and the bundle's own Python package. Of a given bundle only data is taken, so: its weights, its metadata, and the plain
settings of ``inference.*``. Network, transforms and inferer are those of the installed bundle that it was made of, with
the overlays that it names; every entry of the given configuration must be the installed one's, or a plain value where
that has one. So the classes that can be built are those that installed bundles name, with their own expressions.

A bundle that is more than that is opened only when a person names its digest.
"""

import json
import logging
import math
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import merged
from fedmed.bundles.digests import DIGESTS, bundle_files, changed_files, read_digests, signer, whole_digest
from fedmed.bundles.find import SHIPPED_BUNDLES
from fedmed.errors import BundleError
from fedmed.files import folders_of, read_json
from fedmed.messages.answers import is_number
from fedmed.yaml_limits import load_limited

log = logging.getLogger("fedmed.bundles")
INFERENCE = ("inference.yaml", "inference.json")
METADATA, WEIGHTS = "metadata.json", "models/model.pt"
WORDS = "site_words"
PLACES = {"bundle_root"}  # settings that are plain and name a place: they are this machine's
FORBIDDEN = set("$@%#:/\\")  # of texts: MONAI evaluates, resolves or reads what they begin, or they lead elsewhere
MAX_TEXT, MAX_DEPTH = 200, 5
SHORTEST = 16  # letters of a digest by which a bundle may be named


def open_given(root: Path, place: Path, trusted: Collection[str] = ()) -> Path:
    """Return a bundle's folder that may be run.

    Args:
        place: an empty folder, which must stay as long as the bundle is used.
        trusted: digests of bundles that may run their own code, or their first letters, at least 16.

    Returns:
        ``root`` itself where it is installed, which is this machine's own; else a folder of its name in ``place``.

    Raises:
        BundleError: it is not a bundle, a file of it was changed or damaged since its export, or it would run code of
            its own and is not among the trusted; says its digest and how to trust it.
    """
    root = Path(root).expanduser().absolute()
    config = _config(root)
    installed = [*folders_of("bundles", "FEDMED_BUNDLES"), SHIPPED_BUNDLES]
    if root.resolve().parent in [folder.resolve() for folder in installed]:
        return root
    try:
        _check_unchanged(root, [f"configs/{METADATA}", f"configs/{config.name}", WEIGHTS])
        opened = _compose(root, config, place)
        if read_digests(root) is None:
            log.warning("bundle %s carries no %s: nothing tells whether it was damaged since its export", root, DIGESTS)
        return opened
    except BundleError as error:
        if (copy := _trusted(root, place, trusted)) is not None:
            return copy
        digest = whole_digest(root)
        raise BundleError(
            f"bundle {root}: {error}. Its digest is {digest}, signed by {signer(root)}. To open it, MONAI would run "
            "what it says as code, with all that you may do here. If whoever made it has told you this digest, and you "
            f"trust them so far: --trust {digest[:SHORTEST]}"
        ) from error


def _check_unchanged(root: Path, needed: Collection[str]) -> None:
    if changed := changed_files(root, [name for name in needed if (root / name).is_file()]):
        more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
        raise BundleError(
            f"it is not as it was exported, damaged or changed: {', '.join(changed[:3])}{more}; copy or export it "
            f"again, or, if you changed it yourself, delete {root / DIGESTS}"
        )


def _config(root: Path) -> Path:
    if not root.is_dir():
        raise BundleError(f"bundle {root}: the folder does not exist; correct the path")
    configs = [path for name in INFERENCE if (path := root / "configs" / name).is_file()]
    for name, missing in ((METADATA, not (root / "configs" / METADATA).is_file()), (INFERENCE[0], not configs)):
        if missing:
            raise BundleError(f"{root} is not a bundle: configs/{name} is missing; fedmed export makes one")
    if len(configs) > 1:
        raise BundleError(f"{root} has {' and '.join(path.name for path in configs)}; leave one")
    return configs[0]


def _trusted(root: Path, place: Path, trusted: Collection[str]) -> Path | None:
    """A copy of a trusted bundle, without what Python compiled; None where it is not trusted."""
    named = [digest.lower() for digest in trusted if len(digest) >= SHORTEST]
    if not named:
        return None
    copy = place / root.name
    for path in bundle_files(root):
        target = copy / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    digest = whole_digest(copy)  # of what is run, whatever happens to the other meanwhile
    if not any(digest.startswith(one) for one in named):
        shutil.rmtree(copy)
        return None
    log.warning("bundle %s runs code of its own. Digest: %s; signed by %s", root, digest, signer(copy))
    return copy


def _compose(root: Path, config: Path, place: Path) -> Path:
    """A bundle of the installed one's configuration and code with the given one's settings, metadata and weights."""
    metadata = _plain_metadata(root / "configs" / METADATA)
    base, content = _of_installed(*_made_of(root, metadata), _read(config), f"configs/{config.name}")
    if not (root / WEIGHTS).is_file():
        raise BundleError(f"{WEIGHTS} is missing, and no other form of weights is read: TorchScript is code")
    made = place / root.name
    (made / "configs").mkdir(parents=True)
    (made / "models").mkdir()
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
    (made / "configs" / INFERENCE[0]).write_text(text, encoding="utf-8")
    (made / "configs" / METADATA).write_text(json.dumps(metadata, ensure_ascii=False), encoding="utf-8")
    shutil.copyfile(base.root / "configs" / "federation.yaml", made / "configs" / "federation.yaml")
    for package in (path.parent for path in base.root.glob("*/__init__.py")):
        (made / package.name).symlink_to(package)
    for kept in (WEIGHTS, DIGESTS):
        if (root / kept).is_file():
            (made / kept).symlink_to(root / kept)
    return made


def _of_installed(
    name: str, overlays: list[str], given: Mapping[str, Any], where: str
) -> tuple[Bundle, dict[str, Any]]:
    """The installed bundle of a name whose configuration this is, and that with the given settings.

    The checkout's comes first: what is installed under the same name may be an export of it.
    """
    refused: list[BundleError] = []
    for folder in (SHIPPED_BUNDLES, None):
        try:
            base = Bundle(name, overlays, site_bundles=folder)
            ours = merged(base.config_file("inference"), base.files[1:])
            return base, ours | settings_of(given, ours, where, base)
        except BundleError as error:
            refused.append(error)
    raise refused[0]


def _made_of(root: Path, metadata: Mapping[str, Any]) -> tuple[str, list[str]]:
    digests, said = read_digests(root), metadata.get("federation")
    if digests is not None:
        name, overlays = digests["made_of"].get("bundle"), digests["made_of"].get("overlays")
    elif isinstance(said, Mapping) and isinstance(said.get("base"), Mapping):  # of an earlier FedMed
        name, overlays = said["base"].get("bundle"), said.get("overlays")
    else:
        raise BundleError("it was not exported by FedMed")
    if not isinstance(name, str) or not isinstance(overlays, list) or not all(isinstance(o, str) for o in overlays):
        raise BundleError("it does not say which bundle it was made of")
    return name, overlays


def settings_of(given: Mapping[str, Any], ours: Mapping[str, Any], where: str, base: Bundle) -> dict[str, Any]:
    """The plain settings in which a given configuration differs from the installed one.

    Args:
        ours: the installed bundle's, with the overlays merged in.

    Raises:
        BundleError: an entry that the installed one does not have, or that differs and is not a plain value.
    """
    settings = {}
    for key, value in given.items():
        if key in ours and value == ours[key]:
            continue
        if key not in ours or not _is_plain(ours[key]) or not _fits(_judged(key, value), ours[key]) or key in PLACES:
            with_overlays = f" with {', '.join(base.overlays)}" if base.overlays else ""
            raise BundleError(
                f"{where}: '{str(key)[:60]}' is not what the installed bundle '{base.name}' {base.version}"
                f"{with_overlays} has there, nor a plain value in its place"
            )
        settings[key] = value
    return settings


def _judged(key: str, value: Any) -> Any:
    """A setting as it is judged: words of a site may hold a stroke, since they name no file at inference."""
    if key != WORDS or not isinstance(value, Mapping):
        return value
    return {name: text.replace("/", "") if isinstance(text, str) else text for name, text in value.items()}


def _fits(value: Any, ours: Any) -> bool:
    """Tell whether a value may stand where the installed bundle has another: plain, and of its kind."""
    if not _is_plain(value):
        return False
    if value is None or ours is None:
        return not isinstance(value, str)  # a text might be a path, where nothing is given by default
    if is_number(ours):
        return is_number(value)
    return type(value) is type(ours)


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Tell whether MONAI takes a value literally: it evaluates, resolves, builds and reads nothing in it."""
    if depth > MAX_DEPTH:
        return False
    if isinstance(value, Mapping):
        named = all(isinstance(key, str) and _is_plain_text(key) and not key.startswith("_") for key in value)
        return named and all(_is_plain(each, depth + 1) for each in value.values())
    if isinstance(value, list):
        return all(_is_plain(each, depth + 1) for each in value)
    if isinstance(value, str):
        return _is_plain_text(value)
    return value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value))


def _is_plain_text(text: str) -> bool:
    return len(text) <= MAX_TEXT and text.isprintable() and ".." not in text and not FORBIDDEN & set(text)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = load_limited(path.read_text(encoding="utf-8"))  # JSON is YAML too
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise BundleError(f"configs/{path.name} cannot be read ({type(error).__name__})") from error
    if not isinstance(content, dict):
        raise BundleError(f"configs/{path.name} does not hold named entries")
    return content


def _plain_metadata(path: Path) -> dict[str, Any]:
    """The metadata, in which MONAI would evaluate and read texts as in any configuration."""
    content = read_json(path, BundleError)
    _check_texts(content)
    return content


def _check_texts(value: Any) -> None:
    if isinstance(value, Mapping):
        if bad := [key for key in value if key.startswith("_")]:
            raise BundleError(f"configs/{METADATA}: '{bad[0][:60]}' is not a key of metadata")
        for each in value.values():
            _check_texts(each)
    elif isinstance(value, list):
        for each in value:
            _check_texts(each)
    elif isinstance(value, str) and value.lstrip().startswith(("$", "@", "%")):
        raise BundleError(f"configs/{METADATA}: {value[:60]!r} is not a text but something to be evaluated or read")
