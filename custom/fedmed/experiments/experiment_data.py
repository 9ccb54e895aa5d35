"""What a table is run on: a YAML in ``experiments/data/`` that names the kind of data by its class."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fedmed.errors import JobError
from fedmed.experiments.yaml_models import build_named
from fedmed.settings.yaml_model import YamlModel, read_yaml


def different(values: list) -> list:
    if not values or len(set(values)) < len(values):
        raise ValueError("it must have at least one value, and none twice")
    return values


Seeds = Annotated[list[Annotated[int, Field(ge=0)]], AfterValidator(different)]
Names = Annotated[list[str], AfterValidator(different)]
Shares = Annotated[list[Annotated[float, Field(gt=0, le=1)]], AfterValidator(different)]


class ExperimentData(YamlModel):
    """Base of all kinds of data.

    Attributes:
        name: for folders and headings; the file's.
        seeds: used unless the command line names others; None = the table's own.
    """

    name: str
    seeds: Seeds | None = None

    def shown_sites(self, wanted: list[str]) -> dict[str, str]:
        """The table's names of the sites that it shows -> this data's.

        Raises:
            JobError: a site is unknown.
        """
        return {name: name for name in wanted}


def load_data(path: Path) -> ExperimentData:
    """Read a YAML such as ``experiments/data/demo.yaml``.

    Raises:
        JobError: missing or malformed file, or one that does not name its class.
    """
    content: dict[str, Any] = dict(read_yaml(path, error=JobError).values)
    if "path" not in content:
        raise JobError(
            f"{path}: 'path' is missing: the kind of data, fedmed.experiments.federation_data.FederationData for "
            "labelled and unlabelled sites of a job, fedmed.experiments.hospital_data.HospitalData for pre-training"
        )
    return build_named(ExperimentData, {**content, "name": Path(path).stem}, str(path))
