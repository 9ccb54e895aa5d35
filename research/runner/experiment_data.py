"""Data of a table: a YAML in ``research/experiments/data/`` that names the kind of data by its class."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from fedmed.errors import JobError
from fedmed.jobs.job import Job
from fedmed.jobs.study import Study
from fedmed.settings.yaml_model import YamlModel, read_yaml
from research.runner.yaml_models import build_named


def _different(values: list[Any]) -> list[Any]:
    if not values or len(set(values)) < len(values):
        raise ValueError("it must have at least one value, and none twice")
    return values


Count = Annotated[int, Field(ge=1)]
Names = Annotated[list[str], AfterValidator(_different)]
Positive = Annotated[float, Field(gt=0)]
Seeds = Annotated[list[Annotated[int, Field(ge=0)]], AfterValidator(_different)]
Shares = Annotated[list[Annotated[float, Field(gt=0, le=1)]], AfterValidator(_different)]


class ExperimentData(YamlModel):
    """Base of all kinds of data."""

    name: str  # the file's, for folders and headings
    seeds: Seeds | None = None  # used unless the command line names others; None = the table's own
    bundle: str  # what is trained
    job: dict[str, Any] = {}  # further settings of every job

    def shown_sites(self, wanted: list[str]) -> dict[str, str]:
        """The table's names of the sites that it shows -> this data's; a JobError names one that is unknown."""
        return {name: name for name in wanted}


def load_data(path: Path) -> ExperimentData:
    """Read a YAML such as ``research/experiments/data/demo.yaml``; a JobError says what is wrong with it."""
    content: dict[str, Any] = dict(read_yaml(path, error=JobError).values)
    if "path" not in content:
        raise JobError(
            f"{path}: 'path' is missing: the kind of data, research.runner.federation_data.FederationData for "
            "labelled and unlabelled sites of a job, research.runner.hospital_data.HospitalData for pre-training"
        )
    return build_named(ExperimentData, {**content, "name": Path(path).stem}, str(path))


def stage_job(arm: str, given: Mapping[str, Any], **values: Any) -> Job:
    """The job of a stage.

    Args:
        arm: its name, for messages.
        given: what YAML says below ``job``.
        values: what the stage says in its own words.

    Raises:
        JobError: ``job`` sets what a job does not know, or what the stage says itself.
    """
    known = set(Study.model_fields) - set(values)
    if unknown := sorted(set(given) - known):
        raise JobError(f"arm '{arm}': 'job' may not set '{unknown[0]}'; it may set: {', '.join(sorted(known))}")
    return Job.of({**values, **given})
