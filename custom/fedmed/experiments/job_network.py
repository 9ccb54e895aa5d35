"""The network of a finished job, for links that use it themselves."""

from pathlib import Path

from monai.bundle import ConfigParser
from torch import nn

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.network import initial_network
from fedmed.durable_files import load_tensors
from fedmed.experiments.job_scores import RUN
from fedmed.experiments.job_step import JobStep
from fedmed.recovery.model_store import LAST


class JobNetwork:
    """What the bundle of a job says, for a machine without a site: on the CPU, at no place among the job's sites."""

    def __init__(self, step: JobStep) -> None:
        self.step, study = step, step.job.study
        args = step.job.of_role(step.job.model_role)
        facts = {"device": "cpu", "site_index": None, "site_count": len(study.sites)}
        self.parser: ConfigParser = Bundle(study.bundle, args["overlays"], args["overrides"]).parser(**facts)

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of its images."""
        height, width = self.parser.get("image_size")
        return int(height), int(width)

    @property
    def frames(self) -> int:
        """How many frames it sees at once."""
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
