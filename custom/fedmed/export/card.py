"""The model card of an exported bundle: what a hospital wants to know before it runs somebody else's model."""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from monai.bundle import ConfigParser

from fedmed.export.configs import FITTED, footprint
from fedmed.export.folder import MODELS
from fedmed.reports.words import NOTHING, count, fixed, join, plain_delta, plain_epsilon

TEMPLATE = "card.md.j2"
AROUND = ("inferer", "postprocessing", "post_transforms")
PARTS = {"supervised": "trained with masks", "unsupervised": "trained without masks", "evaluate": "none, tested only"}


def card(meta: Mapping[str, Any], config: Path, folder: Path, network: tuple[str, int], checks: Sequence[str]) -> str:
    """Return the Markdown of ``docs/README.md``.

    Args:
        meta: the exported metadata, with its ``federation``.
        config: the exported ``inference`` config.
        folder: the exported bundle, with its weights.
        network: its class and number of parameters.
        checks: what was checked at the export, in words.
    """
    fed, formats = meta["federation"], meta["network_data_format"]
    image, pred = formats["inputs"]["image"], next(iter(formats["outputs"].values()))
    text = resources.files("fedmed.export").joinpath("templates", TEMPLATE).read_text(encoding="utf-8")
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    return environment.from_string(text).render(
        meta={"references": [], "name": "", **meta},
        fed=fed,
        folder=folder.name,
        input=f"{image.get('modality', 'image')}, {image['format']}; {meta.get('image_classes', '')}".rstrip("; "),
        output=_labels(pred["channel_def"]),
        channels=pred["num_channels"],
        shape=f"(N, {', '.join(map(str, [image['num_channels'], *image['spatial_shape']]))})",
        value_range=f"{image['value_range'][0]}…{image['value_range'][1]}",
        network=network[0],
        parameters=_large(network[1]),
        files=[f"`models/{path.name}`" for path in sorted((folder / MODELS).iterdir())],
        onnx=(folder / MODELS / "model.onnx").is_file(),
        story=story(fed),
        settings=settings(config),
        results_note=_results_note(fed),
        rows=[_row(row) for row in fed["sites"]],
        limits=limits(fed),
        checks=checks,
        software=join([f"{name} {version}" for name, version in fed["software"].items()]),
        commit=f" FedMed at commit {fed['commit']}." if fed["commit"] else "",
    )


def _labels(channels: Mapping[str, str]) -> str:
    return "label map: " + ", ".join(f"{value} = {name.replace('_', ' ')}" for value, name in sorted(channels.items()))


def _large(n: int) -> str:
    return f"{n / 1e6:.1f} million" if n >= 1e6 else f"{n / 1e3:.0f} thousand"


def story(fed: Mapping[str, Any]) -> str:
    """How the model came about, in a few sentences."""
    sites, cases, sharing = fed["number_of_sites"], fed["training_cases"], fed["aggregation"].get("sharing", "full")
    parts = [f"{count(sites['supervised'], 'site')} with masks ({count(cases['supervised'], 'training case')})"]
    if sites["unsupervised"]:
        parts.append(f"{count(sites['unsupervised'], 'site')} without ({count(cases['unsupervised'], 'case')})")
    told = f"Federated training of {join(parts)}, {count(fed['rounds'], 'round')} of {fed['steps']} steps at each site"
    warm = f", the first {fed['warm_start_rounds']} by the sites with masks alone" if fed["warm_start_rounds"] else ""
    buffers = fed["aggregation"].get("buffers", "average")
    rule = f"Updates are averaged by the steps behind them; shared: {_plain(sharing)}; BatchNorm statistics: {buffers}"
    private = fed["private_tensors_of"]
    own = f" The layers that are not shared are those of {private}." if private else ""
    start = fed["model_round"]
    chosen = "the one with the best mean validation Dice" if fed["model"] == "selected" else "the last one"
    kept = f"the model after round {start}" if start else "the starting model, which no round improved"
    return f"{told}{warm}. {rule}.{own} This is {kept}, {chosen}. Images never left a site. Seed {fed['seed']}."


def _plain(sharing: Any) -> str:
    if isinstance(sharing, Mapping):
        return join([f"{group} ({role})" for role, group in sorted(sharing.items())])
    return "all layers" if sharing == "full" else f"all but group {sharing}"


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


def _row(row: Mapping[str, Any]) -> list[str]:
    part = PARTS.get(row["role"], row["role"])
    part += f"; scored with the decoder of {row['decoder_of']}" if row.get("decoder_of") else ""
    part += f"; weight {row['weight']:g}" if row["weight"] != 1 else ""
    cases = str(row["test_cases"]) if row["test_cases"] else NOTHING
    return [row["site"], part, *(fixed(row[key]) for key in ("validation_dice", "test_dice", "test_dice_std")), cases]


def _results_note(fed: Mapping[str, Any]) -> str:
    score = fed["validation_dice"]
    chosen = f"Mean validation Dice of the sites with masks: {score:.3f}. " if score is not None else ""
    return f"{chosen}Test cases took no part in training or in choosing the model; Dice is the mean of a site's cases."


def limits(fed: Mapping[str, Any]) -> list[str]:
    """What the numbers above do not say."""
    tested = [row for row in fed["sites"] if row["test_dice"] is not None]
    unseen = [row["site"] for row in tested if row["role"] == "evaluate"]
    found = []
    if not tested:
        found.append("No site has tested this model.")
    else:
        worst = min(tested, key=lambda row: row["test_dice"])
        few = sum(row["test_cases"] for row in tested)
        found.append(
            f"{count(few, 'test case')} in all; the worst site, {worst['site']}, reaches {worst['test_dice']:.3f}."
        )
    if unseen:
        found.append(
            f"Only {join(unseen)} took no part in the training; expect such a score, or a lower one, elsewhere."
        )
    else:
        found.append("No score comes from a site outside the training; expect lower ones elsewhere.")
    if untested := [row["site"] for row in fed["sites"] if row["test_dice"] is None]:
        found.append(f"Not tested at {join(untested)}.")
    if fed["number_of_sites"]["unsupervised"]:
        found.append("Sites without masks trained on the model's own predictions, which can strengthen its mistakes.")
    found.append(protection(fed.get("protection") or {}))
    found += [f"{text}: {fed[key]}; see the run's report." for key, text in INCIDENTS.items() if fed[key]]
    if fed["private_tensors_of"]:
        own = fed["private_tensors_of"]
        found.append(f"Layers of {own} alone are in it: it fits the images and the readers of that site best.")
        if others := [row["site"] for row in tested if own not in (row["site"], row.get("decoder_of"))]:
            found.append(f"{join(others)} had other layers when tested: those scores are not this model's.")
    return found


def protection(told: Mapping[str, Any]) -> str:
    """What may be promised about the training images, in one sentence."""
    clip, noise = told.get("sites_that_clip", 0), told.get("sites_with_noise", 0)
    nothing = "nothing is promised about what the model reveals of its training images"
    if not noise:
        did = f"{count(clip, 'site')} clipped the updates, none added noise" if clip else "No site reported any noise"
        return f"{did}: {nothing}."
    said = f"{count(noise, 'site')} added Gaussian noise to clipped updates"
    if told.get("largest_epsilon") is not None and told.get("delta"):
        spent = f"ε = {plain_epsilon(told['largest_epsilon'])} at δ = {plain_delta(told['delta'])}"
        said += f", at most {spent}"
    return f"{said}. That protects a site's data as a whole, not single patients; of other sites {nothing}."


INCIDENTS = {
    "guard_warnings": "Warnings that pseudo-labels vanished or spread",
    "refused_updates": "Updates that the server refused",
    "failed_rounds": "Rounds that failed",
}
