"""Declarations of a method: roles, values beside the model, scalars."""

from collections.abc import Sequence
from dataclasses import dataclass

TRAINING_ROLES = ("supervised", "unsupervised")
ROLES = (*TRAINING_ROLES, "evaluate")
ONCE, EACH_ROUND, FROM_A_ROUND = "once", "each round", "from a round on"
WITH_UPDATE, BEFORE_TRAINING = "train", "metadata"  # the task with whose answer a value leaves


@dataclass(frozen=True)
class Role:
    """Part that sites of one role have.

    Attributes:
        does: in words, after a site's name: ``trains with labels``.
        executor: class path of FLARE's executor.
        overlays: of the bundle, merged after the study's own.
        lists: of the datalist: of each group of names one list must hold images.
        needs: what a site must have, in a sentence or two.
        receives: sharing group that the role receives, whatever the study's ``sharing``; None = the study's.
        sends: sharing group that the role sends; None = what it receives.
        least: sites of this role without which the method makes no sense.
        silent: settings of the bundle with which its sites take part in every round and learn nothing, for comparison.
    """

    does: str
    executor: str
    overlays: tuple[str, ...] = ()
    lists: tuple[tuple[str, ...], ...] = ()
    needs: str = ""
    receives: str | None = None
    sends: str | None = None
    least: int = 0
    silent: tuple[tuple[str, float], ...] = (("learning_rate", 0.0),)


@dataclass(frozen=True)
class AuxiliaryValue:
    """A value that leaves a site beside the model, if the site's settings list it under ``allowed_extras``.

    Attributes:
        name: its key.
        shape: in words, ``one number`` or ``d numbers``.
        task: ``train``, with the update; or ``metadata``, computed and sent before the round's training.
        direction: who gets it, in words.
        when: ``once``, ``each round`` or ``from a round on``.
        round: the first round in which it is sent, counted from 0.
        tells: what it tells about a hospital, in a sentence.
        needed: whether the server or other sites work with it; if not, it is for the report alone.
        entries: whether it is a table, with an entry of numbers from 0 on for each of as many images as the site has.
        sent_by: role whose sites send it before they train; empty: all that train.
        given_to: roles whose sites get it, those that never train when they score a model; empty: all that train.
    """

    name: str
    shape: str
    task: str
    direction: str
    tells: str
    when: str = EACH_ROUND
    round: int = 0
    needed: bool = True
    entries: bool = False
    sent_by: str = ""
    given_to: tuple[str, ...] = ()


@dataclass(frozen=True)
class Exchanged:
    """Values that sites answer to a ``metadata`` task, before they train with those of the other sites.

    Attributes:
        names: of the values; none: nothing is exchanged.
        first_round: in which this begins, counted from 0.
        once: in that round alone, and what sites said stays.
        entries: whether the values are tables.
        sent_by: role whose sites answer; empty: all that train.
        given_to: roles whose sites get the values of others.
    """

    names: tuple[str, ...] = ()
    first_round: int = 0
    once: bool = False
    entries: bool = False
    sent_by: str = ""
    given_to: tuple[str, ...] = TRAINING_ROLES

    @classmethod
    def of(cls, values: Sequence[AuxiliaryValue]) -> "Exchanged":
        """Make it of a method's values, of which those count that leave before training."""
        if not (early := [value for value in values if value.task == BEFORE_TRAINING]):
            return cls()
        first, names = early[0], tuple(value.name for value in early)
        given = first.given_to or TRAINING_ROLES
        return cls(names, first.round, first.when == ONCE, first.entries, first.sent_by, given)

    def in_round(self, round: int) -> bool:
        """Tell whether sites answer such a task before they train in this round."""
        return bool(self.names) and (round == self.first_round if self.once else round >= self.first_round)

    def sends(self, role: str) -> bool:
        """Tell whether sites of a role answer it."""
        return bool(self.names) and (self.sent_by or role) == role in TRAINING_ROLES

    def receives(self, role: str) -> bool:
        """Tell whether sites of a role get what others answer."""
        return bool(self.names) and role in self.given_to


@dataclass(frozen=True)
class Scalar:
    """A number that sites report of a round's training.

    Attributes:
        name: the metric, ``train_…``.
        label: for a person.
        unit: ``share`` (0..1), ``nats``, or empty for a number without one.
        better: ``higher``, ``lower``, or empty where neither is better in itself.
        tells: what a reader of its curve should know, in sentences.
    """

    name: str
    label: str
    unit: str = ""
    better: str = ""
    tells: str = ""


PSEUDO_LABELS = (  # of a method's ``caution``
    "Sites without {labels} trained on the model's own predictions, which can strengthen its mistakes."
)
USED_LABELS = "train_supervised_loss"  # reported by a site without the role 'supervised' that trained on labels too
LOSS = Scalar("train_loss", "loss", better="lower")
SUPERVISED = Role(
    "trains with labels",
    "fedmed.flare.executors.SupervisedExecutor",
    lists=(("training",), ("validation",)),
    needs="This site has images with labels. Its datalist needs 'training', 'validation' and best 'testing'.",
)
UNLABELLED = Role(
    "trains without labels",
    "fedmed.flare.executors.ConsistencyExecutor",
    lists=(("unlabeled", "training"),),
    needs="This site has images without labels: its datalist needs 'unlabeled'; lists with labels serve too.",
)
EVALUATED = Role(
    "is only scored",
    "fedmed.flare.executors.SupervisedExecutor",
    lists=(("testing",),),
    needs="This site is only scored: its datalist needs 'testing', images with labels. It trains nothing.",
)
