"""A federation whose few sites take turns: each is once the labelled one beside each that is left out."""

from itertools import permutations
from typing import Any

from pydantic import model_validator

from fedmed.errors import JobError
from research.runner.experiment_data import Names
from research.runner.federation_data import FederationData

LABELLED, LEFT_OUT, OTHER = "labelled", "left_out", "other_{}"  # the table's names of sites


class OneTurn(FederationData):
    """One assignment."""

    assigned: str

    @property
    def turn(self) -> str:
        return self.assigned


class SitesInTurn(FederationData):
    """Each ordered pair of ``members`` is once ``labelled`` and ``left_out``; the others are ``other_1``, ``other_2``…

    All turns of an arm and seed are one result of it: a case that is scored in several turns counts as so many cases of
    one patient.
    """

    members: Names  # sites of the federation
    sites: dict[str, str] = {}  # of a turn

    @model_validator(mode="before")
    @classmethod
    def _places(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("members"), list):
            return values
        if values.get("sites"):
            raise ValueError("'sites' is made of 'members', one assignment after the other; leave it out")
        return {**values, "sites": _assigned(*values["members"])}

    @model_validator(mode="after")
    def _enough(self) -> "SitesInTurn":
        if len(self.members) < 3:
            raise ValueError("'members' needs three sites: one with labels, one without, one left out")
        return self

    def shown_sites(self, wanted: list[str]) -> dict[str, str]:
        """Scores are those of the places."""
        if missing := [site for site in wanted if site not in self.sites]:
            raise JobError(
                f"'{self.name}' has no place '{missing[0]}'; its sites take turns as {', '.join(self.sites)}"
            )
        return {site: site for site in wanted}

    def turns(self) -> list[FederationData]:
        common = {key: getattr(self, key) for key in FederationData.model_fields if key != "sites"}
        made: list[FederationData] = []
        for labelled, left_out in permutations(self.members, 2):
            others = [site for site in self.members if site not in (labelled, left_out)]
            assigned = _assigned(labelled, *others, left_out)
            said = f"labels of {labelled}, without {left_out}"
            made.append(OneTurn.model_construct(**common, sites=assigned, assigned=said))
        return made


def _assigned(labelled: str, *others: str) -> dict[str, str]:
    """Places -> sites; the last one is left out."""
    middle = {OTHER.format(place): site for place, site in enumerate(others[:-1], start=1)}
    return {LABELLED: labelled, **middle, LEFT_OUT: others[-1] if others else ""}
