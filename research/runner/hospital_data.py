"""The data of pre-training: its hospitals, the tasks that are learnt at one of them, and what training costs."""

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from fedmed.bundles.bundle import Bundle
from fedmed.errors import BundleError, DataError, JobError
from fedmed.files import data_root, fedmed_home
from fedmed.settings.site import SiteConfig, load_site, parse_site
from fedmed.settings.yaml_model import YamlModel
from research.runner.class_tasks import ClassTask
from research.runner.experiment_data import Count, ExperimentData, Positive
from research.runner.hospital_images import Hospital, hospital_of_site, hospital_of_table


class RoundBudget(YamlModel):
    """Budget of one pre-training.

    Attributes:
        rounds: T; an arm may ask for a multiple.
        warm_up: rounds before sites get values of the others (``exchange``); the same whatever T is.
        epochs: local epochs of a round.
        shares: setting of the bundle -> shares of an arm's rounds, which become epochs: the ``milestones`` at which
            the learning rate falls, say (Dong & Voiculescu 2021: 120 and 160 of 200 rounds).
    """

    rounds: Count
    warm_up: Annotated[int, Field(ge=0)]
    epochs: Positive = 1
    shares: dict[str, list[Positive]] = {}

    @model_validator(mode="after")
    def _fits(self) -> "RoundBudget":
        if self.warm_up > self.rounds:
            raise ValueError(f"'warm_up' is {self.warm_up} rounds; it must be at most {self.rounds}")
        return self


class HospitalData(ExperimentData):
    """Data of a table of pre-training.

    Attributes:
        sites: hospital -> ``{}`` for a site with a YAML and a datalist of its own, or ``{folder, table}`` below
            ``root``. A table's sizes and skews name nodes by their order here.
        tasks: name -> what is learnt on each encoder; all are scored for every arm.
        budget: rounds.
        overlays: of the bundle, before that of the stage.
        overrides: overlay of a stage (of pre-training, or of a protocol) -> overridable settings of the bundle.
        healthy: hospital -> its labels that mean no disease; only a label-skewed arm reads them.
        root: folder of the data, relative to the checkout; ``$FEDMED_HOME/data`` takes its place.
        threads, device, privacy: settings of the sites below ``root``.
    """

    sites: dict[str, dict[Literal["folder", "table"], str]]
    tasks: Annotated[dict[str, ClassTask], Field(min_length=1)]
    budget: RoundBudget
    overlays: list[str] = []
    overrides: dict[str, dict[str, Any]] = {}
    healthy: dict[str, list[str]] = {}
    root: str | None = None
    threads: Count = 1
    device: str = "cpu"
    privacy: dict[str, Any] = {}

    @model_validator(mode="after")
    def _consistent(self) -> "HospitalData":
        for name, where in self.sites.items():
            if where and (len(where) < 2 or self.root is None):
                raise ValueError(f"'sites: {name}' must be {{}}, or {{folder: …, table: labels.csv}} below 'root'")
        for name, task in self.tasks.items():
            if unknown := [site for site in task.sites() if site not in self.sites]:
                known = ", ".join(self.sites)
                raise ValueError(f"'tasks: {name}' names '{unknown[0]}'; it must be one of the sites: {known}")
        try:
            Bundle(self.bundle, list(self.overrides))
        except BundleError as error:
            raise ValueError(f"'overrides': {error}") from error
        return self

    @cached_property
    def hospitals(self) -> dict[str, Hospital]:
        """Every hospital's images, in the order of ``sites``; read once.

        Raises:
            JobError: the data is not there, or a task's classes are not all at its hospital.
            DataError, SiteConfigError: a list or a site's settings cannot be read.
        """
        tested = {site for task in self.tasks.values() for site in task.sites()}
        hospitals = {}
        for name, where in self.sites.items():
            if where:
                folder = self._root() / where["folder"]
                table = folder / where["table"]
                hospitals[name] = hospital_of_table(self._settings(name, folder), table, name in tested)
            else:
                hospitals[name] = hospital_of_site(load_site(name))
        for name, task in self.tasks.items():
            task.check(name, hospitals)
        return hospitals

    def _root(self) -> Path:
        path = data_root(self.root or "")
        if not path.is_dir():
            home = fedmed_home() / "data"
            raise JobError(f"the data of '{self.name}' is not there: {path} is not a folder; put or link it to {home}")
        return path.resolve()

    def _settings(self, name: str, folder: Path) -> SiteConfig:
        if not folder.is_dir():
            raise DataError(f"hospital '{name}': the folder {folder} does not exist; restore it")
        values = {"data_root": str(folder), "device": self.device, "threads": self.threads, "privacy": self.privacy}
        return parse_site(name, values, folder / "labels.csv")
