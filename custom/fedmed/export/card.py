"""The model card of an exported bundle: what a hospital wants to know before it runs somebody else's model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from monai.bundle import ConfigParser
from monai.networks.nets.resnet import ResNet, ResNetBottleneck
from torch import nn

from fedmed.bundles.merged_configs import FITTED, footprint
from fedmed.bundles.score import Score
from fedmed.data.structure import Structure
from fedmed.export.exporter import Exporter
from fedmed.export.folder import MODELS
from fedmed.export.story import limits, results_note, story
from fedmed.plain_text import every_text, in_markdown
from fedmed.reports.words import fixed, join

TEMPLATE = "card.md.j2"
WIDTH = 64  # channels of the first stage of every ResNet of He et al. 2016
AROUND = ("inferer", "postprocessing", "post_transforms")


def card(meta: Mapping[str, Any], exporter: Exporter, config: Path, folder: Path, network: nn.Module) -> str:
    """Return the Markdown of ``docs/README.md``, from the exported metadata, config, folder and network."""
    # What a study or a site named is shown, and makes no link, tag or cell of its own.
    fed, formats = every_text(meta["federation"], in_markdown), meta["network_data_format"]
    score = Score(**meta["federation"]["score"])
    kind, size = exporter.kind, sum(parameter.numel() for parameter in network.parameters())
    image, pred = formats["inputs"]["image"], next(iter(formats["outputs"].values()))
    titles = {one["name"]: in_markdown(Structure(**one).title) for one in meta["classes"]}
    channels = sorted(pred["channel_def"].items(), key=lambda channel: int(channel[0]))
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
        kind=kind,
        words=kind.card,
        folder=folder.name,
        input=f"{image.get('modality', 'image')}, {image['format']}; {meta.get('image_classes', '')}".rstrip("; "),
        output=kind.card.channels([(value, titles.get(name, name)) for value, name in channels]),
        channels=pred["num_channels"],
        classes=list(pred["channel_def"].values()),
        shape=f"(N, {', '.join(map(str, [image['num_channels'], *image['spatial_shape']]))})",
        value_range=f"{image['value_range'][0]}…{image['value_range'][1]}",
        network=named(network),
        parameters=f"{size / 1e6:.1f} million" if size >= 1e6 else f"{size / 1e3:.0f} thousand",
        files=[f"`models/{path.name}`" for path in sorted((folder / MODELS).iterdir())],
        onnx=bool(list((folder / MODELS).glob("*.onnx"))),
        story=story(fed, exporter),
        settings=settings(config),
        results_note=results_note(fed, exporter),
        continuations=exporter.continuations,
        score=score,
        beside=kind.beside(score),
        fixed=fixed,
        limits=limits(fed, kind, exporter.method.caution),
        checks=meta["federation"]["checks"],  # our own words, and files of the bundle
        software=join([f"{name} {version}" for name, version in fed["software"].items()]),
        commit=f" FedMed at commit {fed['commit']}." if fed["commit"] else "",
    )


def named(network: nn.Module) -> str:
    """The network's class; of one around a ResNet also the depth, and the width where it is not the usual one."""
    name, inner = type(network).__name__, next((part for part in network.modules() if isinstance(part, ResNet)), None)
    if inner is None:
        return name
    stages = [inner.layer1, inner.layer2, inner.layer3, inner.layer4]
    depth = 2 + sum(3 if isinstance(block, ResNetBottleneck) else 2 for stage in stages for block in stage)
    width = inner.conv1.out_channels
    narrow = "" if width == WIDTH else f" of width {width} instead of {WIDTH}"
    return f"{name} around a ResNet-{depth}{narrow}"


def settings(config: Path) -> list[tuple[str, str]]:
    """Numbers that decide what the model makes of an image, overlays and overrides included."""
    content = ConfigParser.load_config_file(config)
    used, shown = footprint(content, (*FITTED, *AROUND)), []
    for key, value in content.items():
        numbers = value if isinstance(value, list) else [value]
        if key in used and numbers and all(type(number) in (int, float) for number in numbers):
            shown.append((key, ", ".join(map(str, numbers))))
    return shown
