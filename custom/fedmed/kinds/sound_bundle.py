"""Open a bundle for a federation, or say at once everything that it lacks."""

from dataclasses import replace

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.contract import Use, faults
from fedmed.errors import BundleError
from fedmed.kinds.find_kind import kind_of
from fedmed.kinds.kind import Kind

PAGE = "docs/bundles.md"


def check_bundle(bundle: Bundle, use: Use) -> Kind:
    """Return the kind of a bundle that has all it needs. Nothing is built, so this costs no more than reading it.

    Args:
        bundle: with its overlays.
        use: what it is opened for; whether there are labels is the kind's to say.

    Raises:
        BundleError: the kind is unknown, or anything is missing; names all of it, and the places to put it.
    """
    kind, found = None, []
    try:
        kind = kind_of(bundle)
    except BundleError as error:
        found.append(str(error))
    settings = kind.settings if kind else {}
    found += faults(bundle, replace(use, labels=kind.labelled if kind else False), settings)
    if kind and not found:  # a sound configuration can be asked for its classes
        found += filter(None, [kind.misfit([one.name for one in bundle.classes])])
    if kind is None or found:
        lines = "".join(f"\n- {fault}" for fault in found)
        raise BundleError(
            f"bundle '{bundle.name}' at {bundle.root} cannot be used in a federation ({PAGE} says what a bundle must "
            f"define):{lines}"
        )
    return kind
