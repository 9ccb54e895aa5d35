"""Profile of a synthetic hospital's recordings, in YAML: optics, tissue, instruments, course of the operations."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import yaml
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedmed.data.operation_names import Tool
from fedmed.errors import DataError
from fedmed.yaml_limits import load_limited

PARTS = ("background", "shaft", "wrist", "jaw")  # values 0 to 3 of a mask
VERSION = 2  # grows with every change of the frames: the folder's name holds it
INSTRUMENTS_VERSION = 2  # of the federation that labels parts of instruments
FOLDER = Path(__file__).parent / "profiles"
POOLED = ("training", "validation")  # lists of a pool: tests stay those of the hospitals

Shaft = Literal["steel", "grey", "black", "white"]
Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
Colour = tuple[Share, Share, Share]  # red, green, blue
Organ = Literal["kidney", "prostate", "uterus", "lung"]
Range = tuple[float, float]


class Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Optics(Model):
    """Camera, lens and light."""

    border: Range = (1.1, 1.1)  # radius of the round picture in half diagonals of the frame; above 1: no black border
    gain: tuple[Positive, Positive, Positive] = (1.0, 1.0, 1.0)  # of red, green, blue
    saturation: Positive = 1.0
    gamma: Positive = 1.0
    exposure: Positive = 1.0
    vignette: Share = 0.5  # how much darker the rim is
    blur: float = Field(0.5, ge=0)  # pixels
    noise: float = Field(4.0, ge=0)  # grey levels
    zoom: Positive = 1.0
    text: bool = False  # whether a clock and a name are burnt into the picture


class Anatomy(Model):
    """Tissue: mean colours, from which each patient's differ, and what is operated on."""

    gallbladder: bool = True
    organ: Organ | None = None  # what lies in the place of gallbladder and liver
    liver: Colour = (0.60, 0.27, 0.22)
    wall: Colour = (0.72, 0.44, 0.42)
    fat: Colour = (0.88, 0.68, 0.42)
    spread: float = Field(0.06, ge=0)  # of these colours between patients
    relief: Positive = 1.0  # how rough surfaces are
    texture: Share = 1.0  # how mottled and wet surfaces are; 0: plain colours without reflections, as of a simulator


class Instruments(Model):
    """Look of the instruments at this hospital."""

    width: Positive = 0.105  # of a shaft at the wrist, in heights of the frame
    bend: float = Field(14.0, ge=0, le=80)  # of the wrist, degrees to either side
    shafts: tuple[Shaft, ...] = ("steel", "grey", "black", "white")
    ends: tuple[Shaft, ...] = ()  # materials of wrists and jaws; empty: those of most instruments
    robotic: bool = False  # a long wrist of two joints and short jaws, as a robot's instruments have
    reach: float = Field(0.0, ge=0, le=0.5)  # how far beyond the place of work tips go, in heights of the frame
    hook: Share = 0.6  # how often the coagulation device is a hook; else a bipolar forceps


class Course(Model):
    """Operations: their length, pace, order, and which share of the time each tool is seen."""

    seconds: Range = (60.0, 90.0)
    pace: tuple[Positive, ...] = Field((0.12, 0.26, 0.13, 0.27, 0.1, 0.12), min_length=6, max_length=6)
    tools: Mapping[Tool, Share] = {}
    outside: Share = 0.3  # how often a recording begins out of the body
    no_preparation: Share = 0.1  # how often it begins later
    fundus_first: Share = 0.1  # gallbladder dissected from the top: clipping before and after it
    cleaning_first: Share = 0.2  # cleaning before packaging
    cleaning_twice: Share = 0.15  # before and after
    blood: Share = 0.4
    smoke: Share = 0.5


class VideoList(Model):
    """One list of the datalist."""

    videos: int = Field(gt=0)
    validates: int = Field(0, ge=0)  # of ``unlabeled``: how many, the last, validate where all labels are used
    seconds: Range | None = None  # of an operation, where it is another than in the other lists
    without: tuple[Tool, ...] = ()  # tools that none of its videos shows


class HospitalProfile(Model):
    """One synthetic hospital."""

    name: str  # in jobs
    prefix: str  # of its patients' identifiers
    procedure: str = ""  # what it operates, of which its folder has a vector then
    size: tuple[Annotated[int, Field(ge=32, multiple_of=2)], Annotated[int, Field(ge=24, multiple_of=2)]] = (256, 192)
    rate: Positive = 5.0  # frames a second
    rate_swing: float = Field(0.0, ge=0, lt=1)  # by which share the time between two frames grows and shrinks
    labels: tuple[Literal["phase", "tools"], ...] = ("phase", "tools")  # columns of the tables
    parts: Literal["all", "binary", "none"] = "all"  # values of the masks
    mask_every: Positive = 10.0  # seconds between two masks
    pictures: int = Field(0, ge=0)  # of a patient, in no order, each with its mask; 0: a video
    optics: Optics = Optics()
    anatomy: Anatomy = Anatomy()
    instruments: Instruments = Instruments()
    course: Course = Course()
    lists: Mapping[str, VideoList]
    simulated_by: str = ""  # the hospital of the same file whose training pictures it has too
    simulator: "HospitalProfile | None" = None  # that hospital
    pools: tuple[str, ...] = ()  # hospitals of the same file whose recordings for training it has in place of its own
    members: "tuple[HospitalProfile, ...]" = ()  # those hospitals

    @property
    def counts(self) -> dict[str, int]:
        """Videos, each of another patient, in each list."""
        if self.members:
            return {name: sum(one.counts.get(name, 0) for one in self.members) for name in POOLED}
        return {name: videos.videos for name, videos in self.lists.items()}

    def part_values(self, mask: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """A mask of places in ``PARTS`` with the values that are written: those, or 1 for all parts."""
        return np.minimum(mask, 1) if self.parts == "binary" else mask

    def tiny(self, rate: float = 2.0, mask_every: float = 3.0, seconds: Range = (20.0, 24.0)) -> "HospitalProfile":
        """The same hospital with a video or two of some seconds a list, a few pixels, and every tool: for tests."""
        often = {tool: max(share, 0.1) for tool, share in self.course.tools.items()}
        course = self.course.model_copy(update={"seconds": seconds, "tools": often})
        few = {name: min(one.validates, 1) for name, one in self.lists.items()}
        lists = {
            name: one.model_copy(update={"videos": 1 + few[name], "validates": few[name], "seconds": None})
            for name, one in self.lists.items()
        }
        small = {"size": (64, 48), "rate": rate, "mask_every": mask_every, "pictures": min(self.pictures, 4)}
        others = {
            "simulator": self.simulator and self.simulator.tiny(rate, mask_every, seconds),
            "members": tuple(one.tiny(rate, mask_every, seconds) for one in self.members),
        }
        return self.model_copy(update=small | others | {"course": course, "lists": lists})


class ProfileFile(Model):
    """A file of ``profiles/``: values that its hospitals share, and the hospitals."""

    hospitals: tuple[HospitalProfile, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _share(cls, data: object) -> object:
        if not isinstance(data, dict) or "shared" not in data:
            return data
        return {"hospitals": [merged(data["shared"], one) for one in data.get("hospitals", [])]}


def merged(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """``base`` with the values of ``over`` on top, mapping by mapping."""
    both = {
        key: merged(below, value)
        if isinstance(value, Mapping) and isinstance(below := base.get(key), Mapping)
        else value
        for key, value in over.items()
    }
    return {**base, **both}


def read_profiles(path: Path) -> dict[str, HospitalProfile]:
    """The hospitals of one YAML file by name.

    Raises:
        DataError: the file is missing, is not YAML, or a value is unknown or out of its range.
    """
    try:
        federation = ProfileFile.model_validate(load_limited(path.read_text(encoding="utf-8")))
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise DataError(f"{path}: these profiles of hospitals cannot be used; correct the file: {error}") from error
    by_name = {hospital.name: hospital for hospital in federation.hospitals}
    for name, hospital in by_name.items():
        if (other := hospital.simulated_by) and other not in by_name:
            raise DataError(f"{path}: {name} is simulated by '{other}'; name one of {', '.join(by_name)}")
        by_name[name] = hospital.model_copy(update={"simulator": by_name.get(other)})
    return {name: _with_members(hospital, by_name, path) for name, hospital in by_name.items()}


def _with_members(hospital: HospitalProfile, known: Mapping[str, HospitalProfile], path: Path) -> HospitalProfile:
    single = {name for name, one in known.items() if not (one.pools or one.pictures)}
    if wrong := sorted(set(hospital.pools) - single):
        raise DataError(f"{path}: {hospital.name} pools '{wrong[0]}'; name some of {', '.join(sorted(single))}")
    return hospital.model_copy(update={"members": tuple(known[name] for name in hospital.pools)})
