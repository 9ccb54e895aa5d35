#!/usr/bin/env python3
"""Do the label server's strategies hand out the scans that a model does worst?

Predicts synthetic scans of the demo's sites without training masks, whose masks are known, and gives the rank
correlation (Spearman) of each score with 1 - Dice: 1 = the worst scan comes first, 0 = no better than any order.

    benchmarks/active_learning.py models/covid_ct_segmentation --seeds 0 1 2 3
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import nibabel as nib
import numpy as np
import torch
from monai.bundle import ConfigParser
from monai.data import MetaTensor
from monai.transforms import SaveImaged
from scipy.stats import spearmanr
from torch import Tensor

from fedmed.labelling.views import mean_disagreement, predictive_uncertainty, trained_augmentation
from fedmed_demo import demo_site

SITES, CONTROL = ("ct_east", "ct_west"), "ct_control"
VIEWS = (1, 2, 4)


class Model:
    """A bundle's inference: probabilities on its own grid, and the mask on the image's."""

    def __init__(self, bundle: Path) -> None:
        parser = ConfigParser()
        parser.read_config(str(bundle / "configs" / "inference.yaml"))
        parser["bundle_root"] = str(bundle)
        sys.path.insert(0, str(bundle))
        self.network = parser.get_parsed_content("network_def").eval()
        self.network.load_state_dict(torch.load(bundle / "models" / "model.pt", weights_only=True))
        self.prepare, self.inferer = (parser.get_parsed_content(name) for name in ("preprocessing", "inferer"))
        self.finish = parser.get_parsed_content("postprocessing")
        self.finish.transforms = [step for step in self.finish.transforms if not isinstance(step, SaveImaged)]

    def predict(self, image: MetaTensor, view: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        batch = image.as_tensor()[None]
        with torch.no_grad():
            return self.inferer(view(batch) if view else batch, self.network)[0]

    def mask(self, image: MetaTensor, p: Tensor) -> np.ndarray:
        return self.finish({"image": image, "pred": MetaTensor(p).copy_meta_from(image)})["pred"][0].numpy() > 0


def measure(model: Model, settings: dict, folder: Path, case: dict) -> dict[str, float]:
    """Scores of one scan; and 1 - Dice where it has a mask."""
    image = model.prepare({"image": str(folder / case["image"])})["image"]
    p = model.predict(image)
    row = {"uncertainty": predictive_uncertainty(p)}

    def predict(view: Callable[[Tensor], Tensor] | None) -> Tensor:
        return model.predict(image, view) if view else p

    single = [mean_disagreement(predict, settings, [seed]) for seed in range(max(VIEWS))]
    row |= {f"disagreement, {views} view{'s' * (views > 1)}": fmean(single[:views]) for views in VIEWS}
    mask = model.mask(image, p)
    true = np.asanyarray(nib.load(folder / case["label"]).dataobj) > 0 if "label" in case else np.zeros_like(mask)
    # A scan without disease in which nothing is found is right.
    row["1 - dice"] = 1 - 2 * (mask & true).sum() / max(mask.sum() + true.sum(), 1) if mask.any() or true.any() else 0
    row["less found"] = -float(mask.sum())
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bundle", type=Path, help="bundle with weights")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3], help="of the synthetic patients")
    parser.add_argument("--out", type=Path, help="JSON of every scan")
    options = parser.parse_args()
    torch.set_num_threads(1)
    model, settings = Model(options.bundle.resolve()), trained_augmentation(options.bundle)
    rows, healthy, start = [], [], time.monotonic()
    for seed in options.seeds:
        for site in (*SITES, CONTROL):
            folder = demo_site("chest_ct", site, seed=seed)
            lists = json.loads((folder / "datalist.json").read_text())
            for case in lists["unlabeled" if site == CONTROL else "testing"]:
                row = {"seed": seed, "site": site, **measure(model, settings, folder, case)}
                (healthy if site == CONTROL else rows).append(row)
    if options.out:
        options.out.write_text(json.dumps(rows + healthy, indent=1))
    report(rows, healthy)
    print(f"{len(rows) + len(healthy)} scans in {time.monotonic() - start:.0f} s, one thread")


def report(rows: list[dict], healthy: list[dict]) -> None:
    """Print the correlations, and what the first fifth of the scans with disease is like."""
    wrong = np.array([row["1 - dice"] for row in rows])
    fifth = max(1, len(rows) // 5)
    print(
        f"Dice of {len(rows)} scans: mean {1 - wrong.mean():.2f}, worst fifth {1 - np.sort(wrong)[-fifth:].mean():.2f}"
    )
    false = sum(row["1 - dice"] == 1 for row in healthy)
    print(f"In {false} of {len(healthy)} scans without disease the model finds something; they count as Dice 0.")
    print(f"\n| score | {' | '.join(('with disease', *SITES, 'all'))} | Dice of the first fifth |")
    print("|---" * (len(SITES) + 4) + "|")
    for name in (key for key in rows[0] if key not in ("seed", "site", "1 - dice")):
        groups = [rows, *([row for row in rows if row["site"] == site] for site in SITES), rows + healthy]
        results = (spearmanr(*([row[key] for row in group] for key in (name, "1 - dice"))) for group in groups)
        cells = [f"{result.statistic:+.2f}" for result in results]
        first = np.argsort([-row[name] for row in rows])[:fifth]
        print(f"| {name} | {' | '.join(cells)} | {1 - wrong[first].mean():.2f} |")


if __name__ == "__main__":
    main()
