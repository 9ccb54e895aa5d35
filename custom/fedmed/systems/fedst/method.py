"""FedST (Fang et al. 2025) and FedDP (Wang et al. 2023)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from fedmed.errors import JobError
from fedmed.methods.declarations import Role
from fedmed.methods.method import private_roles, said_elsewhere, what_stays
from fedmed.methods.supervised_fedavg import SupervisedFedAvg

SERVER = {
    "separation": True,
    "fine_tuning": False,
    "mean": None,
}  # whether representations are separated; None: no step
SAID = ("server_separates", "server_steps")  # settings that arguments of their own say


@dataclass(frozen=True)
class FedDP(SupervisedFedAvg):
    """Each site has query layers of its own in the encoder's attention; the server averages all other layers.

    Without the original's calibration of the head by how much the sites' heads disagree.

    Attributes:
        weighting: as of :class:`SupervisedFedAvg`; by default all sites count the same.
        group: sharing group of the bundle whose layers stay at each site; ``full``: none.
    """

    name: ClassVar[str] = "feddp"
    title: ClassVar[str] = "FedDP"
    source: ClassVar[str] = "Wang et al. 2023, IEEE Transactions on Medical Imaging"
    example: ClassVar[Mapping[str, Any]] = {
        "bundle": "instrument_segmentation", "overlays": ["single_frame"], "rounds": 300, "steps": 100,
    }  # fmt: skip
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo", "single_frame"], "rounds": 32, "steps": 100}
    stays: ClassVar[str] = "the query layers"

    weighting: str = "uniform"
    group: str = "encoder_q"

    def roles(self) -> Mapping[str, Role]:
        return private_roles(self.group)

    def contradictions(self, said: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        return said_elsewhere(said)

    def card(self) -> str:
        return (
            f"Each site trained on its own labelled images and kept {self.stays} of the network to itself; the server "
            f"averaged all other layers ({self.title})."
        )

    def dry_run(self) -> tuple[str, ...]:
        return what_stays(self.group)


@dataclass(frozen=True)
class FedST(FedDP):
    """Sites keep the queries of the encoder's attention and the choice of channels; what moves and how is shared.

    After each average the server trains the shared layers on images of its own, which nobody needs to keep secret.
    Settings of the losses and of the server's training are the bundle's, overlays ``train`` and ``serq``.

    Attributes:
        group: sharing group whose layers stay at each site; ``full``: none.
        server: ``separation``, Eq. 10-12: a second network and a descriptor of the server's images take what is
            peculiar to them; ``fine_tuning``: the averaged model is trained on these images as it is; ``mean``: no
            training there.
        server_steps: optimizer steps of each network that the server trains, after each average.
        server_settings: further settings of that training, which overlay ``serq`` lists as ``overridable``, such as
            ``{server_lambda2: 0.1}``.
    """

    name: ClassVar[str] = "fedst"
    title: ClassVar[str] = "FedST"
    source: ClassVar[str] = "Fang et al. 2025"
    example: ClassVar[Mapping[str, Any]] = {"bundle": "instrument_segmentation", "rounds": 300, "steps": 100}
    small: ClassVar[Mapping[str, Any]] = {"overlays": ["demo"], "rounds": 32, "steps": 100}
    stays: ClassVar[str] = "the query layers and the choice of channels"

    server: str = "separation"
    server_steps: int = 100
    server_settings: Mapping[str, Any] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        if self.server not in SERVER:
            raise JobError(f"'server' is {self.server!r}; use one of {', '.join(SERVER)}")
        if type(self.server_steps) is not int or self.server_steps < 1:
            raise JobError(f"'server_steps' is {self.server_steps!r}; give a whole number, 1 or more")
        if not isinstance(self.server_settings, Mapping) or set(SAID) & set(self.server_settings):
            said = f"without {' and '.join(SAID)}, which 'server' and 'server_steps' say"
            raise JobError(
                f"'server_settings' is {self.server_settings!r}; give settings of overlay serq, such as "
                f"{{server_lambda2: 0.1}}, {said}"
            )

    def server_training(self) -> dict[str, Any] | None:
        separates = SERVER[self.server]
        settings = {**self.server_settings, "server_separates": separates, "server_steps": self.server_steps}
        return None if separates is None else {"overlay": "serq", "settings": settings}

    def report_sections(self) -> tuple[str, ...]:
        return ("fedmed.systems.fedst.report.ServerTrainingSection", "fedmed.systems.fedst.report.ChannelGatesSection")

    def card(self) -> str:
        trained = {"separation": "trained them", "fine_tuning": "fine-tuned them", "mean": ""}[self.server]
        after = f" and {trained} on images of its own, which are not of patients" if trained else ""
        return (
            f"Each site trained on its own labelled videos and kept {self.stays} to itself; the server averaged the "
            f"other layers{after} (FedST, Fang et al. 2025)."
        )
