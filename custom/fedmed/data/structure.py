"""Classes of a study: values of a mask or outputs of a classifier, with name, colour, coded concept, unit."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator

MILLILITRES = {"ml": 1.0, "l": 1000.0}  # of a unit


def check_name(name: str) -> str:
    """Return the name of a class if a job may carry it and a datalist may spell it so; ValueError otherwise."""
    if not re.fullmatch("[A-Za-z0-9][A-Za-z0-9 _.+-]{0,63}", name):
        raise ValueError("use 1 to 64 letters a-z, digits, spaces and _ . + -, a letter or digit first")
    return name


class Code(BaseModel):
    """A coded concept of DICOM, such as 39607008, SCT, Lung."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    value: str = Field(min_length=1, max_length=16, description="code value")
    scheme: str = Field(default="SCT", min_length=1, max_length=16, description="coding scheme designator")
    meaning: str = Field(min_length=1, max_length=64, description="code meaning")


ANATOMY = Code(value="91723000", meaning="Anatomical Structure")
TISSUE = Code(value="85756007", meaning="Tissue")  # what 3D Slicer calls a segment that nobody described


class Structure(BaseModel):
    """One class of a study: a structure in a mask, or a class of images.

    The codes are those of a segment in a DICOM segmentation (CID 7150, 7151 and what follows them).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)
    name: Annotated[str, AfterValidator(check_name)] = Field(
        description="as labels spell it: letters, digits, and after the first also spaces and _ . + -"
    )
    label: str = Field(default="", max_length=64, description="plain name for a reader; by default the name")
    colour: str | None = Field(default=None, description="#rrggbb")
    code: Code | None = Field(default=None, description="what it is, as a DICOM code; by default Tissue")
    category: Code | None = Field(default=None, description="of the code; by default Anatomical Structure")
    anatomy: Code | None = Field(default=None, description="where it lies, as a DICOM code")
    unit: Literal["ml", "l"] = Field(default="ml", description="of a volume")

    @field_validator("colour")
    @classmethod
    def _hexadecimal(cls, colour: str | None) -> str | None:
        if colour is not None and not re.fullmatch("#[0-9a-fA-F]{6}", colour):
            raise ValueError("write '#rrggbb' in quotes, such as '#e6a11c'")
        return colour

    @property
    def title(self) -> str:
        """Name for a reader."""
        return self.label or self.name.replace("_", " ")

    @property
    def codes(self) -> tuple[Code, Code]:
        """Category and type of a segment."""
        return (self.category or ANATOMY, self.code) if self.code else (TISSUE, TISSUE)

    @property
    def rgb(self) -> tuple[int, int, int] | None:
        """The colour, 0…255 each."""
        return tuple(bytes.fromhex(self.colour[1:])) if self.colour else None  # type: ignore[return-value] # three bytes

    def amount(self, millilitres: float) -> str:
        """A volume in the structure's unit, with three digits and never with an exponent: ``6.02 l``, ``5,960 ml``."""
        return f"{three_digits(millilitres / MILLILITRES[self.unit])} {self.unit}"

    def facts(self) -> dict[str, Any]:
        """Plain values, without what is not said."""
        return {key: value for key, value in self.model_dump(exclude_none=True).items() if value}


def three_digits(value: float) -> str:
    """A number with three digits and never with an exponent: ``6.02``, ``0.053``, ``5,960``."""
    return f"{value:.3g}" if 1e-4 <= abs(value) < 999.5 else f"{float(f'{value:.3g}'):,.0f}"


def described(names: Iterable[str], *said: Iterable[Structure]) -> list[Structure]:
    """Each name with what is said of it, by the first who says more than the name."""
    known: dict[str, Structure] = {}
    for structures in reversed(said):
        known |= {one.name: one for one in structures if one != Structure(name=one.name)}
    return [known.get(name) or Structure(name=name) for name in names]


def titles(structures: Iterable[Structure]) -> str:
    """``lungs, airways``: the plain names in a row."""
    return ", ".join(structure.title for structure in structures)
