"""The words of a kind of task in the card of an exported model."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CardWords:
    """Words of a model card.

    Attributes:
        how_to_run: template in ``export/templates`` that says how it is used.
        labels: what sites with labels have.
        case: what is counted.
        sample: what a site counts of its training list, where that is something else, as frames of videos.
        unfit: what it must not be used for, and what it needs.
        output: what comes out; ``{names}`` stands for the names of the channels.
        inputs: of what a folder is that the model is run on: ``images`` or ``videos``.
        numbered: whether those names stand with their values, as of a label map.
        trained: what sites with labels do, for the table of sites.
        task, values: of a model of other classes than its bundle's own: what it does, and what the values of its result
            are; ``{names}`` and ``{modality}`` stand for theirs. Empty where the bundle's words name no class.
    """

    how_to_run: str
    labels: str
    case: str
    unfit: str
    output: str
    inputs: str = "images"
    numbered: bool = False
    trained: str = "trained with"
    sample: str = ""
    task: str = ""
    values: str = ""

    def part(self, role: str, contributed: int | None = None) -> str:
        """A site's part in the training.

        Args:
            role: its role.
            contributed: rounds in which its update moved the model; None where that is not known.
        """
        if role == "evaluate":
            return "none, tested only"
        if contributed == 0:
            return f"none: no update of this site {'with' if role == 'supervised' else 'without'} {self.labels} counted"
        return f"{self.trained if role == 'supervised' else 'trained without'} {self.labels}"

    def channels(self, names: list[tuple[str, str]]) -> str:
        """What comes out, by (value, name) of each channel."""
        shown = (f"{value} = {name}" if self.numbered else name for value, name in names)
        return self.output.format(names=", ".join(shown))
