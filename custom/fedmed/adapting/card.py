"""What the model card says of an adaptation."""

from fedmed.adapting.decisions import COLOUR, INTENSITY, STATISTICS, Adapted
from fedmed.plain_text import in_markdown

WORDS = {
    INTENSITY: "brightness of the images",
    COLOUR: "colours of the images",
    STATISTICS: "mean and variance of the normalisation layers",
}


def card_section(adapted: Adapted, amount: str, version: str) -> str:
    """The section, as Markdown."""
    rows = [
        f"| {one.name}: {WORDS[one.name]} | {'yes' if one.made else 'no'} | {in_markdown(one.why)} |"
        for one in adapted.decisions
    ]
    share = f" The images' own are {adapted.share:.0%} of the statistics; the rest came with the model." * bool(
        adapted.share
    )
    return "\n".join(
        [
            "## Adapted to one hospital's images",
            "",
            f"Version {version} was adapted to {amount} of one hospital. Nobody looked at a label, and no weight was "
            f"trained.{share} Results below are of the bundle before: how well this one does at that hospital is not "
            "known until a reader has marked some of its images, and elsewhere it may do worse.",
            "",
            "| Adaptation | Made | Why |",
            "|---|---|---|",
            *rows,
            "",
            "`docs/page.html`, if it is there, shows the hospital's own images before and after. Remove it before you "
            "give the bundle to anybody.",
            "",
        ]
    )


def with_section(card: str, section: str) -> str:
    """A card with a section before its first one."""
    head, mark, rest = card.partition("\n## ")
    return f"{head}\n{section}{mark}{rest}" if mark else f"{card.rstrip()}\n\n{section}"
