"""Keep MONAI from loading transformers, which it does where that is installed, for a network that nobody uses here.

It would cost each process two seconds and 60 MB; transformers itself is there for bundles that import it.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

USER = "monai.networks.nets.transchex"


class NotForMonai(MetaPathFinder):
    """Finds no ``transformers`` while MONAI's network of that kind is loaded, which can do without."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return nothing: the next finder is asked.

        Raises:
            ModuleNotFoundError: it is MONAI that asks.
        """
        user = sys.modules.get(USER) if name.partition(".")[0] == "transformers" else None
        if user is not None and getattr(user.__spec__, "_initializing", False):
            raise ModuleNotFoundError(f"{name} is not loaded for {USER}", name=name)
        return None


def keep_imports_light() -> None:
    """Begin to do so; a second call changes nothing."""
    if not any(isinstance(finder, NotForMonai) for finder in sys.meta_path):
        sys.meta_path.insert(0, NotForMonai())
