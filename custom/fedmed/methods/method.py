"""Base of methods, and what of a model they let stay at a site: private layers, statistics of normalisation."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from torch import nn

from fedmed.aggregation.sharing import FULL
from fedmed.methods.declarations import EVALUATED, SUPERVISED, WITH_UPDATE, AuxiliaryValue, Exchanged, Role, Scalar
from fedmed.methods.guard import Guard
from fedmed.training.corrections.correction import Correction

MEAN = "fedmed.aggregation.weighted_mean.WeightedMean"
ALL_SITES = "all"  # in place of one site: the mean of what all labelled sites release
Buffers = str | Mapping[Any, str]  # one of the policies, or role -> policy


@dataclass(frozen=True)
class Method:
    """A method of federated training. A study names it by class path, with plain arguments, the dataclass's fields.

    This class itself declares nothing: it stands for the method of a run whose records do not tell it.

    Attributes:
        name: its short name, of letters, digits and underscores, for one of FedMed's own.
        title: its name for a person.
        source: the paper.
        aggregator: class path of FLARE's aggregator.
        example: values of a study that suit it, of its paper's size; ``fedmed study init`` writes them.
        small: other values, with which a laptop ends in minutes.
        small_args: of its own arguments those that go with them.
        frozen: sharing group whose layers nobody trains: sites keep what the job started with, and so does the server.
        summed: overlay with which a network's weights are the sum of parts; its ``summed`` gives the tensors of a plain
            network, and that is exported, without the overlay.
        own_images: whether each site shows the model its images changed in a way of its own, so that a model is
            exported for one site.
        adaptation_text: what sites without labels do, also when a model is tested, but not in a control that leaves
            them out: ``show the model their {images} brighter``, where ``{images}`` stands for what they are.
        scored_adapt: whether sites that never train adapt to their own images too.
        caution: what sites without labels learned from that can mislead, a sentence for a model's card, where
            ``{labels}`` stands for what these sites lack; empty: nothing.
    """

    name: ClassVar[str] = ""
    title: ClassVar[str] = "federated training"
    source: ClassVar[str] = ""
    aggregator: ClassVar[str] = "fedmed.flare.aggregators.IterationWeightedAggregator"
    example: ClassVar[Mapping[str, Any]] = {}
    small: ClassVar[Mapping[str, Any]] = {}
    small_args: ClassVar[Mapping[str, Any]] = {}
    frozen: ClassVar[str | None] = None
    summed: ClassVar[str | None] = None
    own_images: ClassVar[bool] = False
    adaptation_text: ClassVar[str] = ""
    scored_adapt: ClassVar[bool] = False
    caution: ClassVar[str] = ""

    def roles(self) -> Mapping[str, Role]:
        """Role -> what its sites do."""
        return {}

    def values(self) -> tuple[AuxiliaryValue, ...]:
        """Values that leave a site beside the model."""
        return ()

    def rule(self) -> dict[str, Any]:
        """Rule of the server, ``path`` and ``args``: what it makes of a round's updates."""
        return {"path": MEAN, "args": {}}

    def amended(self, rule: Mapping[str, Any]) -> dict[str, Any]:
        """The server's rule, of :meth:`rule` as the study changes it.

        Raises:
            JobError: what the study asks for does not go with this.
        """
        return dict(rule)

    def moved_by_silent(self, rule: Mapping[str, Any]) -> bool:
        """Tell whether updates of sites without labels that learned nothing change what the server's rule makes.

        A mean over all sites is held back by them.

        Args:
            rule: ``path`` and ``args``, as :meth:`amended` and the study make them.
        """
        return True

    def server_training(self) -> Mapping[str, Any] | None:
        """Training at the server after each round's mean: ``overlay`` of the bundle, which defines
        ``server#training`` and is the server's alone, and maybe ``settings``, plain values that it lists as
        overridable; None = the mean is the next model.
        """
        return None

    def settings(self, role: str) -> Mapping[str, Any]:
        """Overridable settings of the overlays of a role -> values."""
        return {}

    def corrections(self, network: nn.Module) -> Sequence[Correction]:
        """Corrections of a site's training that need no overlay, made anew for each task, after those of overlays.

        Args:
            network: the site's.
        """
        return ()

    def contradictions(self, said: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
        """Find what a study's values that are not defaults cannot mean with this: key, and a sentence."""
        return ()

    def guards(self) -> Mapping[str, Guard]:
        """Name, under which its state is saved -> a new guard that warns of a collapse."""
        return {}

    def scalars(self) -> tuple[Scalar, ...]:
        """Numbers that sites report of their training."""
        return ()

    def report_sections(self) -> tuple[str, ...]:
        """Class paths of what a report shows of this method alone: :class:`fedmed.reports.run_report.ReportSection`."""
        return ()

    def next_methods(self) -> Mapping[str, str]:
        """Methods that begin with the model of this one, by short name -> what each does, without its subject."""
        return {}

    def card(self) -> str:
        """Say how the model came about, in a sentence for its card."""
        return ""

    def dry_run(self) -> tuple[str, ...]:
        """Say what a site should know before it takes part, in sentences."""
        return ()

    def spec(self) -> dict[str, Any]:
        """Class path and arguments, from which :func:`fedmed.methods.find_method.load_method` makes an equal object."""
        return {"path": f"{type(self).__module__}.{type(self).__name__}", "args": asdict(self)}

    def role(self, name: str) -> Role:
        """Return what sites of a role do; an empty role for one that the method does not have."""
        return self.roles().get(name, Role("takes part", ""))

    def exchange(self) -> Exchanged:
        """Values that sites send of their images before they train."""
        return Exchanged.of(self.values())

    def with_update(self, needed: bool = False) -> list[str]:
        """Names of the values that come with an update; with ``needed`` those alone that the server works with."""
        return [v.name for v in self.values() if v.task == WITH_UPDATE and (v.needed or not needed)]

    def validation_errors(self, sites: Mapping[str, str]) -> list[str]:
        """Find why these sites and roles are not for this method, in sentences; none if they are."""
        known: Mapping[str, Role] = self.roles()
        problems: list[str] = []
        for site, role in sorted(sites.items()):
            if role not in known:
                use = " or ".join(f"'{name}'" for name in known)
                problems.append(f"site '{site}' has the role '{role}', which {self.title} does not have; use {use}")
        for name, made in known.items():
            if sum(role == name for role in sites.values()) < made.least:
                problems.append(f"{self.title} needs at least {made.least} site with the role '{name}'")
        return problems


def private_roles(group: str, overlays: tuple[str, ...] = ()) -> dict[str, Role]:
    """Sites with labels, which train with these overlays, and those that are only scored; ``full``: all is shared."""
    stays = None if group == FULL else group
    labelled = replace(SUPERVISED, least=1, overlays=overlays, receives=stays)
    return {"supervised": labelled, "evaluate": replace(EVALUATED, receives=stays)}


def said_elsewhere(
    said: Mapping[str, Any], where: str = "what stays at the sites is said as 'method.args.group'"
) -> Iterator[tuple[str, str]]:
    """Keys of a study that say what stays at the sites beside the method, as :meth:`Method.contradictions`."""
    if "sharing" in said:
        yield "sharing", f"'sharing': {where}; leave it out"
    if "sharing" in said.get("warm_start", {}):
        yield "warm_start", f"'warm_start.sharing': {where}; leave it out"


def what_stays(group: str) -> tuple[str, ...]:
    """For a site that wants to know, in sentences."""
    if group == FULL:
        return ()
    return (f"The layers of the sharing group '{group}' never leave the site, unless it allows their release itself.",)


def decoder_source(owner: str) -> str:
    """Name whose private layers scored a site that has none of its own, after ``scored``."""
    return "with the mean of the sites' private layers" if owner == ALL_SITES else f"with {owner}'s decoder"


def of_role(buffers: Buffers, role: str) -> str:
    """The policy of a role; ``average`` where none is said. Sites that are only scored have that of labelled ones."""
    if isinstance(buffers, str):
        return buffers
    return buffers.get(role, buffers.get("supervised", "average") if role == "evaluate" else "average")


def at_server(buffers: Buffers) -> str:
    """Policy of the server for statistics that it is sent: ``average``, ``pooled``, or ``local`` where nobody sends."""
    policies = {of_role(buffers, role) for role in ("supervised", "unsupervised")}
    known = (policy for policy in ("pooled", "average", "local") if policy in policies)
    return next(known, min(policies))  # the rule refuses what is no policy
