"""The network of a finished job, for stages that use it themselves."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from monai.bundle import ConfigParser
from torch import nn

from fedmed.bundles.bundle_parser import initial_network
from fedmed.durable_files import load_tensors
from fedmed.recovery.model_store import LAST
from fedmed.settings.site import SiteConfig
from research.runner.job_scores import RUN
from research.runner.job_step import JobStep, job_before
from research.runner.stages import Place, Stage, StageStep


class JobNetwork:
    """Network of a job's bundle, for a machine without a site: on the CPU, at no place among the job's sites."""

    def __init__(self, step: JobStep) -> None:
        self.step, job = step, step.job
        facts = {"device": "cpu", "site_index": None, "site_count": len(job.study.sites)}
        self.parser: ConfigParser = job.bundle(job.model_role).parser_without_site(**facts)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of its images."""
        height, width = self.parser.get("image_size")
        return int(height), int(width)

    @property
    def frames(self) -> int:
        """Number of frames that it sees at once."""
        return int(self.parser.get("frames", 1))

    def fresh(self) -> nn.Module:
        """With first weights, ready to be used."""
        return initial_network(self.parser, self.step.job.study.seed).eval()

    def last(self) -> nn.Module:
        """With the tensors of the last round, which must be all of them."""
        network = self.fresh()
        network.load_state_dict(load_tensors(self.path)["model"])
        return network

    @property
    def path(self) -> Path:
        """File of the last round's model."""
        return self.step.path / "server" / RUN.parent / "app_server" / LAST


class NetworkStage(Stage):
    """A stage whose one step uses the network of the job before it."""

    def steps(self, place: Place, before: StageStep | None) -> list[StageStep]:
        return [self.step(place, job_before(self, place, before))]

    @abstractmethod
    def step(self, place: Place, before: JobStep) -> "NetworkStep":
        """The step after this job."""


@dataclass(frozen=True)
class NetworkStep(StageStep):
    """A step whose result is one file, made once."""

    before: JobStep
    path: Path

    def machines(self) -> Sequence[SiteConfig]:
        return self.before.machines()

    def missing(self) -> bool:
        return not self.path.is_file()
