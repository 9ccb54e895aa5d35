"""From the word in a bundle or a run to the kind of task, and whether a bundle is sound for it."""

from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.contract import Use, faults
from fedmed.class_paths import classes_below, import_named
from fedmed.data.datalist import UNLABELED
from fedmed.errors import BundleError
from fedmed.kinds.kind import Kind
from fedmed.kinds.segmentation_3d import Segmentation3D

ROOM = "fedmed.kinds"
PAGE = "docs/bundles.md"


def load_kind(spec: Any, where: str, base: Kind | None = None, images: str = "") -> Kind:
    """Return the kind of a name or class path.

    Args:
        spec: name of a file in this folder, such as ``classification``, or a class path.
        where: file and key that say it, for errors.
        base: the bundle's own kind, if an overlay names this one.
        images: what an image is, if the bundle says it.

    Raises:
        BundleError: no such kind, a class that is not one, or one that reads no such images.
    """
    known = installed()
    if isinstance(spec, str) and spec in known:
        return known[spec](base, images)
    if not isinstance(spec, str) or "." not in spec:
        near = get_close_matches(str(spec), known, 1)
        hint = f"; did you mean '{near[0]}'?" if near else ""
        raise BundleError(f"{where} is {spec!r}; use {', '.join(known)}, or the class path of another kind{hint}")
    kind = named_class(spec, where)
    if not isinstance(kind, type) or not issubclass(kind, Kind):
        raise BundleError(f"{where} is '{spec}', which is not a {Kind.__name__}; correct the class path")
    return kind(base, images)


def installed() -> dict[str, type[Kind]]:
    """Name of a file in this folder -> the kind in it."""
    return classes_below(ROOM, Kind)


def named_class(path: str, where: str) -> Any:
    """Import what a class path names.

    Raises:
        BundleError: it is not there; ``where`` says who named it.
    """
    try:
        return import_named(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise BundleError(f"{where} is '{path}', which cannot be imported ({error}); correct the class path") from error


def made(path: str, *args: Any) -> Any:
    """An object of a class that a kind names by path: see :class:`Kind`."""
    return named_class(path, "a kind's class path")(*args)


def kind_of(bundle: Bundle) -> Kind:
    """The kind of a bundle with its overlays.

    Raises:
        BundleError: ``federation.yaml`` or an overlay names none that there is.
    """
    images = str(bundle.federation.get("images") or "")
    kind = load_kind(bundle.federation.get("kind"), f"{bundle.root}/configs/federation.yaml: 'kind'", images=images)
    spec = bundle.overlay_kind
    if spec is None:
        return kind
    return load_kind(spec, f"bundle '{bundle.name}', overlays {bundle.overlays}: 'kind'", kind)


def kind_by_look(lists: Mapping[str, Any]) -> Kind:
    """The kind that a site's datalist looks like, where no job says it; segmentation where nothing tells.

    Args:
        lists: content of the datalist, which may be malformed.
    """
    labelled: list[Mapping[str, Any]] = []
    unlabelled: list[Mapping[str, Any]] = []
    for key, listed in lists.items():
        entries = unlabelled if key == UNLABELED else labelled
        entries += [entry for entry in listed if isinstance(entry, Mapping)] if isinstance(listed, list) else []
    return next((kind() for kind in installed().values() if kind().looks_like(labelled, unlabelled)), Segmentation3D())


def check_bundle(bundle: Bundle, use: Use) -> Kind:
    """Return the kind of a bundle that has all it needs. Nothing is built, so this costs no more than reading it.

    Args:
        bundle: with its overlays.
        use: what it is opened for; whether there are labels is the kind's to say.

    Raises:
        BundleError: the kind is unknown, or anything is missing; names all of it, and the places to put it.
    """
    kind, problems = None, []
    try:
        kind = kind_of(bundle)
    except BundleError as error:
        problems.append(str(error))
    settings = kind.settings if kind else {}
    problems += faults(bundle, replace(use, labels=kind.labelled if kind else False), settings)
    if kind and not problems:  # a sound configuration can be asked for its classes
        problems += filter(None, [kind.validation_error([one.name for one in bundle.classes])])
    if kind is None or problems:
        lines = "".join(f"\n- {fault}" for fault in problems)
        raise BundleError(
            f"bundle '{bundle.name}' at {bundle.root} cannot be used in a federation ({PAGE} says what a bundle must "
            f"define):{lines}"
        )
    return kind
