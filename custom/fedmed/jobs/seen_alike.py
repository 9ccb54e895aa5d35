"""Whether the roles of a job see images alike: tested at another scale, a model looks as if it had not learned."""

from collections.abc import Iterator, Mapping
from typing import Any

from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError


def unlike(bundles: Mapping[str, Bundle]) -> Iterator[str]:
    """What a bundle lists as ``alike`` and the job gives to its roles unlike, in words.

    Args:
        bundles: role -> the bundle with the overlays and overrides that the role gets; roles whose bundle does not open
            are missing, and told of elsewhere.

    Raises:
        BundleError: a bundle's ``alike`` names an id that it does not have.
    """
    for first, one in list(bundles.items())[:1]:
        for key in one.alike:
            expected = _value(one, key)
            values = {role: _value(bundle, key) for role, bundle in bundles.items()}
            yield from (
                f"'{key}' is {expected} for the role '{first}' and {value} for '{role}', and one model would see "
                f"images of two kinds; give both the same '{key}'"
                for role, value in values.items()
                if value != expected
            )


def _value(bundle: Bundle, key: str) -> Any:
    """What an id is worth; tuples and lists count alike."""
    parser = bundle.parser()
    if key not in parser:
        raise BundleError(f"bundle '{bundle.name}': 'alike' in federation.yaml lists '{key}', which no file has")
    value = parser.get_parsed_content(key)
    return list(value) if isinstance(value, tuple) else value
