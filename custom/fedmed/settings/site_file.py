"""Keys of a site's YAML, their defaults and their checks."""

from typing import Annotated, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from fedmed.moved_classes import hint
from fedmed.settings.machine import Machine
from fedmed.settings.privacy import Privacy
from fedmed.settings.yaml_model import BesideTheFile, Contradictions, InWords, not_required

EXAMPLE = """\
    site: hospital_a            # optional; must equal the site's name in the federation
    data_root: /data/chest_ct   # images and masks lie below this folder
    datalist: datalist.json     # MONAI datalist, relative to data_root
    device: auto                # auto | cpu | cuda | cuda:1
    threads: 2                  # CPU threads of one process
    workers: 0                  # processes that load images
    amp: false                  # mixed precision (GPU only)
    allow_release: false        # may a job score other sites with this site's private layers?
    train_alone: true           # may a study with 'gain' train a model of this site alone too?
    words: {}                   # what a bundle may know of this site, such as {procedure: nephrectomy}; stays here
    allowed_classes: []         # class paths beyond FedMed's own that a job may name here
    privacy: {}                 # what may leave: see docs/privacy.md
"""


def _of_today(path: str) -> str:
    if moved := hint(path):
        raise ValueError(moved)
    return path


ClassPath = Annotated[
    str,
    Field(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)+$"),
    InWords("a class path, such as package.module.Class"),
    AfterValidator(_of_today),
]
WORD_NAME = r"^[a-z][a-z0-9_]{0,39}$"
# It begins with a letter or digit, so that no bundle's configuration takes it for an expression or a reference.
WORD_TEXT = r"^[^\W_][\w .,;'()/+-]{0,99}$"
WordName = Annotated[str, Field(pattern=WORD_NAME), InWords("a name of small letters, digits and _, such as procedure")]
WordText = Annotated[
    str,
    Field(pattern=WORD_TEXT),
    InWords("at most 100 letters, digits, spaces and . , ; ' ( ) / + - _, the first a letter or digit"),
]


class SiteFile(Machine, json_schema_extra=not_required("privacy")):
    """Settings of one site. They stay at the site: no job can change them."""

    site: str | None = None
    """Optional; must equal the site's name in the federation."""

    workers: int = Field(0, ge=0, le=65_536)
    """Processes that load images."""

    amp: bool = False
    """Mixed precision: faster and smaller, GPU only."""

    max_batch_size: int | None = Field(None, ge=1, le=1_000_000)
    """The largest batch that this machine's memory holds; a job's larger one is cut to it."""

    bundles: BesideTheFile | None = None
    """Folder of bundles other than those installed with FedMed."""

    allow_release: bool = False
    """May a job score sites that have no decoder of their own with this site's private layers? They leave it then."""

    allow_kept_release: bool = False
    """May a job keep the mean of such layers of all sites at the server, for the model of a site that never trained?"""

    train_alone: bool = True
    """May a study with 'gain' let this site also train a model alone, which takes as many steps once more? It stays
    here."""

    words: dict[WordName, WordText] = {}
    """What the network of a job's bundle may know of this site, such as procedure: nephrectomy. It never leaves."""

    allowed_classes: tuple[ClassPath, ...] = ()
    """Classes beyond FedMed's own that a job may name at this site, such as my_hospital.methods.Mine."""

    privacy: Privacy
    """What may leave: see docs/privacy.md."""

    @field_validator("site")
    @classmethod
    def _is_this_site(cls, name: str | None, info: ValidationInfo) -> str | None:
        called = (info.context or {}).get("site", name)
        if name not in (None, called):
            raise ValueError(f"this site is called '{called}'")
        return name

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        wrong = []
        if (self.data_root is None) == (self.demo is None):
            wrong += [("data_root", "give either 'data_root' (a folder) or 'demo' (a kind of demo data)")]
        if self.amp and self.device == "cpu":
            wrong += [("amp", "key 'amp' is true, but the device is the CPU; mixed precision needs a GPU")]
        if self.allow_release and self.privacy.noise_multiplier is not None:
            text = "released layers carry no noise, so the account would be void; choose one of the two"
            wrong += [("allow_release", f"key 'allow_release' is true, but 'privacy.noise_multiplier' is set: {text}")]
        if self.allow_kept_release and not self.allow_release:
            text = "what is not released cannot be kept; set 'allow_release' to true too, or leave it out"
            wrong += [("allow_kept_release", f"key 'allow_kept_release' is true, but 'allow_release' is not: {text}")]
        if wrong:
            raise Contradictions(wrong)
        return self
