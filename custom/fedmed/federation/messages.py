"""What a site sends after a round."""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Update:
    """A site's contribution to one round.

    Attributes:
        site: who sends it.
        round: the round it was computed for, counted from 0.
        tensors: name -> difference to the received tensor (``after - before``), on the CPU, in the model's dtypes.
            Integer counters are differences too.
        n_steps: optimizer steps done (Yang 2021's m_k).
        n_samples: training images of the site.
        metrics: scalars such as ``train_loss``, ``val_dice``; no names of cases.
        extras: small additional values of a method, empty unless the site allows them.
    """

    site: str
    round: int
    tensors: dict[str, Tensor]
    n_steps: int
    n_samples: int
    metrics: dict[str, float] = field(default_factory=dict)
    extras: dict = field(default_factory=dict)
