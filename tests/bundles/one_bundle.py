"""Configurations of one bundle of the checkout, as its tests read them."""

import sys
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser

BUNDLES = Path(__file__).resolve().parents[2] / "bundles"


class OneBundle:
    """A bundle, whose package can be imported from then on.

    Args:
        name: of its folder.
        values: that replace those of each configuration.
    """

    def __init__(self, name: str, **values: Any) -> None:
        self.root, self.values = BUNDLES / name, {"device": "cpu", **values}
        self.metadata = self.root / "configs" / "metadata.json"
        if str(self.root) not in sys.path:
            sys.path.append(str(self.root))

    def configs(self, *names: str) -> list[str]:
        """Paths of configurations."""
        return [str(self.root / "configs" / f"{name}.yaml") for name in names]

    def parse(self, *names: str, **values: Any) -> ConfigParser:
        """Configurations merged, with further values."""
        parser = ConfigParser()
        parser.read_config(self.configs(*names))
        parser.update({"bundle_root": str(self.root), **self.values, **values})
        return parser
