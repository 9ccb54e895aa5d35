"""Configurations of one bundle of the checkout, as its tests read them."""

import csv
from pathlib import Path
from typing import Any

from monai.bundle import ConfigParser, ConfigWorkflow

BUNDLES = Path(__file__).resolve().parents[2] / "bundles"


class OneBundle:
    """A bundle.

    Args:
        name: of its folder.
        values: that replace those of each configuration.
    """

    def __init__(self, name: str, **values: Any) -> None:
        self.root, self.values = BUNDLES / name, {"device": "cpu", **values}
        self.metadata = self.root / "configs" / "metadata.json"

    def configs(self, *names: str) -> list[str]:
        """Paths of configurations."""
        return [str(self.root / "configs" / f"{name}.yaml") for name in names]

    def parse(self, *names: str, **values: Any) -> ConfigParser:
        """Configurations merged, with further values."""
        parser = ConfigParser()
        parser.read_config(self.configs(*names))
        parser.update({"bundle_root": str(self.root), **self.values, **values})
        return parser

    def train(self, *overlays: str, **facts: Any) -> Path:
        """File of the weights of a training alone, with the settings of the demonstration."""
        files = self.configs("train", "demo", *overlays)
        made = ConfigWorkflow(files, str(self.metadata), logging_file=False, workflow_type="train", **facts)
        made.initialize()
        assert made.check_properties() == []
        made.run()
        weights = Path(facts["ckpt_dir"]) / "model.pt"
        assert weights.is_file()
        return weights

    def test_scores(self, name: str, **facts: Any) -> list[float]:
        """Scores of that name, one for each tested video, of the trained weights."""
        files = self.configs("train", "demo", "evaluate")
        ConfigWorkflow(files, workflow_type="train", logging_file=False, **facts).run()
        with (Path(facts["output_dir"]) / "videos/cases.csv").open() as file:
            return [float(row[name]) for row in csv.DictReader(file)]
