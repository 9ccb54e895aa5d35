"""A federation of hospitals whose images lie in folders with a table of labels: each in turn has the labels."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, model_validator

from fedmed.errors import DataError, JobError
from fedmed.files import data_root, fedmed_home
from fedmed.settings.site import SiteConfig, parse_site
from fedmed.settings.yaml_model import YamlModel
from research.runner.experiment_data import Names
from research.runner.federated_classification import turn_of
from research.runner.federation_data import FederationData
from research.runner.hospital_images import ImageCase, halves, hospital_of_table, share
from research.runner.site_lists import with_list

VALIDATED = 0.2  # share of the images outside the test list


class HospitalFolder(YamlModel):
    """Folder of a hospital's images, and which of its labels mean which class."""

    folder: str  # below ``root``; it holds labels.csv with the columns file, label, patient
    classes: Annotated[dict[str, Names], Field(min_length=2)]  # class of the job -> labels of the table

    @model_validator(mode="after")
    def _differ(self) -> "HospitalFolder":
        labels = [label for of_class in self.classes.values() for label in of_class]
        if twice := [label for label in labels if labels.count(label) > 1]:
            raise ValueError(f"'classes' has the label '{twice[0]}' in two classes; name it in one")
        return self


class HospitalsInTurn(FederationData):
    """Each of the ``hospitals`` is once ``labelled``; the others keep their names, and train without labels.

    Every hospital must have all classes: else a class would be recognised by the scanner. Half of its patients are its
    test list, a fifth of the other images its validation list; no patient is in two of them. Which these are depends on
    the names and labels of the patients alone, so it is the same in every turn and with every seed.

    Attributes:
        hospitals: name -> where its images lie.
        root: folder of the data, relative to the checkout; ``$FEDMED_DATA`` or ``$FEDMED_HOME/data`` takes its place.
        device, privacy: settings of all hospitals.
    """

    hospitals: Annotated[dict[str, HospitalFolder], Field(min_length=2)]
    root: str
    device: str = "cpu"
    privacy: dict[str, Any] = {}
    sites: dict[str, str] = {}  # of a turn

    @model_validator(mode="before")
    @classmethod
    def _first_turn(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(hospitals := values.get("hospitals"), dict) or not hospitals:
            return values
        if values.get("sites"):
            raise ValueError("'sites' is made of 'hospitals', one turn after the other; leave it out")
        return {**values, "sites": turn_of(next(iter(hospitals)), list(hospitals))}

    @model_validator(mode="after")
    def _same_classes(self) -> "HospitalsInTurn":
        by_name = {name: set(hospital.classes) for name, hospital in self.hospitals.items()}
        wanted = set(self.job.get("classes") or next(iter(by_name.values())))
        if odd := [name for name, classes in by_name.items() if classes != wanted]:
            raise ValueError(
                f"'hospitals: {odd[0]}' has the classes {', '.join(sorted(by_name[odd[0]]))}; every hospital must have "
                f"those of the job, {', '.join(sorted(wanted))}: a class that one lacks would be its scanner"
            )
        return self

    def turns(self) -> list[FederationData]:
        return [self.model_copy(update={"sites": turn_of(name, list(self.hospitals))}) for name in self.hospitals]

    def settings_of(self, site: str) -> SiteConfig:
        """Settings of a hospital, whose lists are written first.

        Raises:
            JobError: the images are not there.
            DataError: the table of labels cannot be read.
        """
        where = self.hospitals[site]
        folder = (data_root(self.root) / where.folder).resolve()
        if not folder.is_dir():
            raise JobError(
                f"the X-rays of '{site}' are not there: {folder} is not a folder; point FEDMED_DATA to the folder that "
                f"holds '{where.folder}'"
            )
        table = folder / "labels.csv"
        values = {"data_root": str(folder), "device": self.device, "threads": 1, "privacy": self.privacy}
        config = parse_site(site, values, table)
        made_of = hashlib.sha256(f"{folder}\0{where.model_dump_json()}".encode()).hexdigest()[:12]
        out = fedmed_home() / "prepared" / f"{where.folder}-{made_of}"
        return with_list(config, out, labelled_lists(hospital_of_table(config, table, tested=False).training, where))


def labelled_lists(cases: Sequence[ImageCase], where: HospitalFolder) -> dict[str, list[dict[str, str]]]:
    """Training, validation and testing, without images of labels that are of no class.

    Raises:
        DataError: a list has no image of a class.
    """
    named = {label: name for name, labels in where.classes.items() for label in labels}
    known = [replace(case, label=named[case.label]) for case in cases if case.label in named]
    learnt, tested = halves(known, "test")
    patients = {case.patient for case in share(learnt, VALIDATED, "validation")}
    lists = {
        "training": [case for case in learnt if case.patient not in patients],
        "validation": [case for case in learnt if case.patient in patients],
        "testing": tested,
    }
    for name, part in lists.items():
        if missing := sorted(set(where.classes) - {str(case.label) for case in part}):
            labels = ", ".join(where.classes[missing[0]])
            raise DataError(
                f"{where.folder}/labels.csv: no image of '{missing[0]}' (labels: {labels}) is left for '{name}'; it "
                "needs more patients with it"
            )
    return {name: [{**vars(case), "label": str(case.label)} for case in part] for name, part in lists.items()}
