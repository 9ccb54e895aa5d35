"""Small sites whose names of files, folders and patients nothing else contains."""

import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import nibabel as nib
import numpy as np
import pytest
import yaml
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent))
from made_kits import SAFE, Authority  # noqa: E402

from fedmed.checks.startup_kit import LIMITS  # noqa: E402
from fedmed.settings.site import SiteConfig, load_site, parse_site  # noqa: E402

AFFINE = np.diag([-0.8, -0.8, 5.0, 1.0])
SHAPE = (20, 18, 8)


@dataclass
class SmallSite:
    """A site on disk: ``root`` with scans and masks, its lists, and its YAML."""

    root: Path
    lists: dict[str, list] = field(default_factory=dict)

    @property
    def yaml(self) -> Path:
        return self.root.parent / "praxis.yaml"

    def image(self, name: str, seed: int, values: np.ndarray | None = None, affine: np.ndarray = AFFINE) -> Path:
        if values is None:
            values = np.random.default_rng(seed).integers(-1000, 400, SHAPE).astype(np.int16)
        return self._save("aufnahmen", name, values, affine)

    def mask(self, name: str, value: int = 1, shape: tuple[int, ...] = SHAPE, affine: np.ndarray = AFFINE) -> Path:
        values = np.zeros(shape, np.uint8)
        values[4:12, 4:12, 2:6] = value
        return self._save("konturen", name, values, affine)

    def _save(self, folder: str, name: str, values: np.ndarray, affine: np.ndarray) -> Path:
        path = self.root / folder / f"{name}.nii.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        nib.save(nib.Nifti1Image(values, affine), path)
        return path

    def case(self, key: str, name: str, seed: int, patient: str | None = None) -> None:
        """Write scan and mask and list them."""
        self.image(name, seed)
        entry = {"image": f"aufnahmen/{name}.nii.gz", "patient": patient or f"Patient-{name}"}
        if key != "unlabeled":
            self.mask(name)
            entry["label"] = f"konturen/{name}.nii.gz"
        self.lists.setdefault(key, []).append(entry)

    def config(self, **settings) -> SiteConfig:
        """Write datalist and YAML and read the latter."""
        values = {"site": "hospital_k", "data_root": str(self.root), "device": "cpu", "threads": 1}
        values |= {"cache_dir": str(self.root.parent / "zwischenlager"), **settings}
        (self.root / "datalist.json").write_text(json.dumps(self.lists))
        self.yaml.write_text(json.dumps(values))  # JSON is YAML
        return parse_site("hospital_k", values, self.yaml)


@pytest.fixture
def small_site(tmp_path):
    """A site without fault: two cases for training, one for each other list."""
    site = SmallSite(tmp_path / "klinikum_hohenfels")
    for seed, (key, name) in enumerate(
        [
            ("training", "MUELLER_19540312"),
            ("training", "SCHMIDT_19610101"),
            ("validation", "WEBER_77"),
            ("testing", "FISCHER_q"),
            ("unlabeled", "WAGNER_z"),
        ]
    ):
        site.case(key, name, seed)
    return site


@pytest.fixture
def xray_site(small_site):
    """Pictures of three classes; a larger one for each further entry."""
    small_site.lists.clear()
    (small_site.root / "bilder").mkdir(parents=True)
    for seed, key in enumerate(("training", "validation", "testing", "unlabeled")):
        for number, label in enumerate(("normal", "normal", "bacteria", "virus")):
            path = small_site.root / "bilder" / f"{key}{number}.png"
            noise = np.random.default_rng([seed, number]).integers(0, 256, (40 + number, 30), dtype=np.uint8)
            Image.fromarray(noise).save(path)
            entry = {"image": f"bilder/{path.name}", "patient": f"P{key}{number}"}
            small_site.lists.setdefault(key, []).append(entry | ({} if key == "unlabeled" else {"label": label}))
    return small_site


@pytest.fixture
def authority():
    return Authority()


@pytest.fixture
def make_kit(tmp_path, authority):
    """Return a function: port -> folder of a kit."""

    def make(port=1, issuer=authority, host="localhost", **settings):
        startup, local = tmp_path / "kit" / "startup", tmp_path / "kit" / "local"
        startup.mkdir(parents=True)
        local.mkdir()
        config = {"servers": [{"service": {"target": f"{host}:{port}", "scheme": "grpc"}}], "client": {}}
        (startup / "fed_client.json").write_text(json.dumps(config))
        (startup / "sub_start.sh").write_text("uid=hospital_k\n")
        (local / "resources.json").write_text(json.dumps(SAFE))
        (local / "privacy.json").write_text(json.dumps({"scopes": [{"task_result_filters": [{"path": LIMITS}]}]}))
        issuer.issue(startup, "client", "hospital_k", **settings)
        return tmp_path / "kit"

    return make


@pytest.fixture
def configs(tmp_path, tiny_site_configs, monkeypatch):
    """Folder of the YAMLs of the tiny sites, to be changed."""
    folder = shutil.copytree(tiny_site_configs, tmp_path / "configs")
    monkeypatch.setenv("FEDMED_SITE_CONFIGS", str(folder))
    return folder


@pytest.fixture
def change_lists(configs, tmp_path):
    """Return a function: site, function -> gives the site a datalist that the function has altered."""

    def altered(site, change):
        config = load_site(site)
        root = shutil.copytree(config.data_root, tmp_path / f"data_{site}")
        datalist = root / config.datalist.relative_to(config.data_root)
        content = json.loads(datalist.read_text())
        change(content)
        datalist.write_text(json.dumps(content))
        values = {"data_root": str(root), "datalist": datalist.name, "device": "cpu", "threads": 1}
        (configs / f"{site}.yaml").write_text(yaml.safe_dump(values))

    return altered
