"""The model card of an exported bundle: what a hospital wants to know before it runs somebody else's model."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from monai.bundle import ConfigParser

from fedmed.bundles.score import Score
from fedmed.export.folder import MODELS
from fedmed.export.merged_configs import FITTED, footprint
from fedmed.export.story import limits, results_note, story
from fedmed.kinds.kind import Kind
from fedmed.reports.words import NOTHING, fixed, join

TEMPLATE = "card.md.j2"
AROUND = ("inferer", "postprocessing", "post_transforms")


def card(
    meta: Mapping[str, Any],
    kind: Kind,
    config: Path,
    folder: Path,
    network: tuple[str, int],
    checks: Sequence[str],
) -> str:
    """Return the Markdown of ``docs/README.md``.

    Args:
        meta: the exported metadata, with its ``federation``.
        kind: of the run's task.
        config: the exported ``inference`` config.
        folder: the exported bundle, with its weights.
        network: its class and number of parameters.
        checks: what was checked at the export, in words.
    """
    fed, formats, score = meta["federation"], meta["network_data_format"], Score(**meta["federation"]["score"])
    image, pred = formats["inputs"]["image"], next(iter(formats["outputs"].values()))
    environment = Environment(
        loader=PackageLoader("fedmed.export"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(TEMPLATE).render(
        meta={"references": [], "name": "", **meta},
        fed=fed,
        words=kind.card,
        folder=folder.name,
        input=f"{image.get('modality', 'image')}, {image['format']}; {meta.get('image_classes', '')}".rstrip("; "),
        output=kind.card.channels(_names(pred["channel_def"])),
        channels=pred["num_channels"],
        classes=list(pred["channel_def"].values()),
        shape=f"(N, {', '.join(map(str, [image['num_channels'], *image['spatial_shape']]))})",
        value_range=f"{image['value_range'][0]}…{image['value_range'][1]}",
        network=network[0],
        parameters=_large(network[1]),
        files=[f"`models/{path.name}`" for path in sorted((folder / MODELS).iterdir())],
        onnx=bool(list((folder / MODELS).glob("*.onnx"))),
        story=story(fed, kind),
        settings=settings(config),
        results_note=results_note(fed, kind),
        head=_head(score, kind),
        rows=[_row(row, score, kind) for row in fed["sites"]],
        limits=limits(fed, kind),
        checks=checks,
        software=join([f"{name} {version}" for name, version in fed["software"].items()]),
        commit=f" FedMed at commit {fed['commit']}." if fed["commit"] else "",
    )


def _names(channels: Mapping[str, str]) -> list[tuple[str, str]]:
    """(value, name) of each channel, in their order."""
    return [(value, name.replace("_", " ")) for value, name in sorted(channels.items(), key=lambda c: int(c[0]))]


def _large(n: int) -> str:
    return f"{n / 1e6:.1f} million" if n >= 1e6 else f"{n / 1e3:.0f} thousand"


def settings(config: Path) -> list[tuple[str, str]]:
    """Numbers that decide what the model makes of an image, overlays and overrides included."""
    config = ConfigParser.load_config_file(config)
    used = footprint(config, (*FITTED, *AROUND))
    content = {key: value for key, value in config.items() if key in used}
    shown = {key: ", ".join(map(str, value)) for key, value in content.items() if _numbers(value)}
    shown |= {key: str(value) for key, value in content.items() if _number(value)}
    return [(key, shown[key]) for key in content if key in shown]


def _number(value: Any) -> bool:
    return type(value) in (int, float)


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_number, value))


def _head(score: Score, kind: Kind) -> list[str]:
    """Heads of the table of results; none for an encoder, which has no scores."""
    if not kind.labelled:
        return []
    spread = ["± std"] if score.spread else []
    spread += ["95 % interval"] if score.low else []
    spread += [f"Test {other.label}" for other in kind.beside(score)]
    return [
        *("Site", "Part in the training", f"Validation {score.label}", f"Test {score.label}", *spread),
        f"Test {kind.card.case}s",
    ]


def _row(row: Mapping[str, Any], score: Score, kind: Kind) -> list[str]:
    part = kind.card.part(row["role"])
    part += f"; scored with the decoder of {row['decoder_of']}" if row.get("decoder_of") else ""
    part += f"; weight {row['weight']:g}" if row["weight"] != 1 else ""
    cells = [row["site"], part, fixed(row[f"validation_{score.name}"]), fixed(row[f"test_{score.name}"])]
    cells += [fixed(row[f"test_{score.spread}"])] if score.spread else []
    if score.low:
        low, high = row[f"test_{score.low}"], row[f"test_{score.high}"]
        cells += [NOTHING if low is None or high is None else f"{low:.3f} to {high:.3f}"]
    cells += [fixed(row[f"test_{other.test}"]) for other in kind.beside(score)]
    return [*cells, str(row["test_cases"]) if row["test_cases"] else NOTHING]
