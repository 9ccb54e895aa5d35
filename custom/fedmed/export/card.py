"""The model card of an exported bundle: what a hospital wants to know before it runs somebody else's model."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from monai.bundle import ConfigParser
from monai.networks.nets.resnet import ResNet, ResNetBottleneck
from torch import nn

from fedmed.bundles.bundle_parser import FITTED, footprint
from fedmed.bundles.score import Score
from fedmed.data.structure import Structure
from fedmed.export.exporter import Exporter
from fedmed.export.folder import MODELS
from fedmed.kinds.kind import Kind
from fedmed.methods.method import ALL_SITES, Buffers, of_role
from fedmed.plain_text import every_text, in_markdown
from fedmed.reports.notes import named_rounds
from fedmed.reports.words import count, fixed, join, plain_delta, plain_number

WIDTH = 64  # channels of the first stage of every ResNet of He et al. 2016
AROUND = ("inferer", "postprocessing", "post_transforms")
WEIGHTS = {
    "iterations": "by the steps behind them",
    "samples": "by the images behind them",
    "uniform": "with equal weights",
}
SENDERS = {"supervised": "sites with labels", "unsupervised": "sites without labels"}
RULES = {
    "median": "The median of the updates is taken, coordinate by coordinate",
    "trimmed_mean": "The trimmed mean of the updates is taken, coordinate by coordinate",
}
INCIDENTS = {
    "guard_warnings": "Warnings of the server during training",
    "refused_updates": "Updates that the server refused",
    "failed_rounds": "Rounds that failed",
}


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
    return environment.get_template("card.md.j2").render(
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
        further=kind.further_scores(score),
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


def story(fed: Mapping[str, Any], exporter: Exporter) -> str:
    """Tell how the model came about, in a few sentences."""
    kind, private, start, warm = exporter.kind, fed["private_tensors_of"], fed["model_round"], fed["warm_start_rounds"]
    amount, unit = (fed["steps"], "step") if "steps" in fed else (fed["epochs"], "epoch")
    length = f"{amount:g} {unit}{'s' * (amount != 1)}"  # epochs may be a fraction
    done, planned = fed["rounds_done"], count(fed["rounds"], "round")
    trained = f"{_training(fed, kind)}, {planned if done == fed['rounds'] else f'{done} of {planned}'} of {length} at "
    trained, warm = f"{trained}each site", min(warm, done)
    trained += f", the first {warm} by the sites with {kind.card.labels} alone" if warm else ""
    settings = fed["aggregation"]
    rule = f"{_rule(settings)}; shared: {_plain(settings.get('sharing', 'full'))}; "
    rule += "".join(
        f"{SENDERS[role]} send all but group {group}; " for role, group in (settings.get("sends") or {}).items()
    )
    rule += f"BatchNorm statistics: {_kept(settings.get('buffers', 'average'))}"
    layers = f" The layers that are not shared are those of {private}." if private else ""
    layers += _mean_of_sites(fed.get("private_tensors_mean"))
    label = Score(**fed["score"]).label
    chosen = f"the one with the best mean validation {label}" if fed["model"] == "selected" else "the last one"
    model = f"the model after round {start}" if start else "the starting model, which no round improved"
    if rounds := fed.get("mean_of"):
        model, chosen = "the mean of several models", f"those after rounds {join([str(round) for round in rounds])}"
    left = f"Images never left a site{_exchanged(fed.get('exchange'))}. Seed {fed['seed']}."
    sentences = [f"{trained}.", exporter.method.card(), f"{rule}.{layers}", f"This is {model}, {chosen}.", left]
    return " ".join(filter(None, sentences))


def _mean_of_sites(mean: Mapping[str, Any] | None) -> str:
    if mean is None:
        return ""
    shares = join([f"{site} ({share:.3f})" for site, share in mean["weights"].items()])
    how = "by their training samples" if mean["weighting"] == "samples" else "with equal weights"
    return f" The layers that are not shared are the mean of those that these sites released, {how}: {shares}."


def _exchanged(exchange: Mapping[str, Any] | None) -> str:
    """Say which values of them did leave, and when; the rounds are counted from 1."""
    if exchange is None:
        return ""
    names, rounds = join([f"`{name}`" for name in exchange["names"]]), exchange["rounds"]
    if not rounds:
        return f", and no values that the study asked for ({names}) either"
    if exchange["once"]:
        return f"; values of some of them ({names}) did, once, before training"
    return f"; statistics of their features ({names}) did, in {named_rounds(rounds)}"


def _training(fed: Mapping[str, Any], kind: Kind) -> str:
    cases, idle = fed["training_cases"], Counter(row["role"] for row in fed["sites"] if row.get("contributed") == 0)
    sites = {role: number - idle[role] for role, number in fed["number_of_sites"].items()}
    if not kind.labelled:
        n, images = (sum(of[role] for role in ("supervised", "unsupervised")) for of in (sites, cases))
        return f"Federated pre-training without labels by {count(n, 'site')} ({count(images, 'image')})"
    case = kind.card.sample or kind.card.case
    without = "without" if sites["supervised"] else f"without {kind.card.labels}"
    trained = {"supervised": (f"with {kind.card.labels}", f"training {case}"), "unsupervised": (without, case)}
    some = fed.get("learned_from_some_labels", 0)
    also = f"; {some} of those without had {kind.card.labels} for some after all" if some else ""
    groups = [
        f"{count(sites[role], 'site')} {what} ({count(cases[role], unit)})"
        for role, (what, unit) in trained.items()
        if sites[role]
    ]
    return f"Federated training of {join(groups)}{also}"


def _rule(aggregation: Mapping[str, Any]) -> str:
    rule, weighting = aggregation.get("rule", "mean"), aggregation.get("weighting", "iterations")
    step, weights = aggregation.get("step"), "with weights of the job's own rule"
    if isinstance(weighting, Mapping) and "name" in weighting:
        weights = f"by the number `{weighting['name']}` that sites report"
    elif not isinstance(weighting, Mapping):
        weights = WEIGHTS.get(weighting, weights)
    while isinstance(step, Mapping) and "then" in step:
        step = step["then"]  # what comes before it is the algorithm's, which the method tells
    averaged = f"Updates are averaged {weights}"
    path = rule["path"] if isinstance(rule, Mapping) else ""
    words = f"Updates become one by the rule `{path}`" if path else RULES.get(rule, averaged)
    by = step.get("by") if isinstance(step, Mapping) else step
    return words if by is None else f"{words}, and an optimizer at the server (`{by}`) takes a step towards the result"


def _kept(buffers: Buffers) -> str:
    if isinstance(buffers, str):
        return buffers
    return join([f"{of_role(buffers, role)} ({who})" for role, who in SENDERS.items()])


def _plain(sharing: Any) -> str:
    if isinstance(sharing, Mapping):
        return join([f"{group} ({role})" for role, group in sorted(sharing.items())])
    return "all layers" if sharing == "full" else f"all but group {sharing}"


def results_note(fed: Mapping[str, Any], exporter: Exporter) -> str:
    """Say what the table of results shows, or why there is none."""
    score, kind, reached = Score(**fed["score"]), exporter.kind, fed[f"validation_{fed['score']['name']}"]
    if not kind.labelled:
        last = fed.get("last_round") or {}
        numbers = [f"{s.label} {last[s.name]:{'.1%' if s.unit == 'share' else '.3f'}}"
                 for s in exporter.method.scalars() if s.name in last]  # fmt: skip
        words = f" In the last round, as the mean over the sites: {join(numbers)}." if numbers else ""
        return f"An encoder has no score of its own: train a classifier on it and test that.{words}"
    best = f"Mean validation {score.label} of the sites with {kind.card.labels}: "
    note = "" if reached is None else f"{best}{reached:.3f}. "
    means = "the mean of a site's cases" if score.spread else "that of all of a site's"
    means += " images together, with its 95 % interval" if score.low else ""
    return f"{note}Test {kind.card.case}s took no part in training or in choosing the model; {score.label} is {means}."


def limits(fed: Mapping[str, Any], kind: Kind, caution: str = "") -> list[str]:
    """Limits that the numbers above do not tell; ``caution``: the method's."""
    test = f"test_{fed['score']['name']}"
    tested = [row for row in fed["sites"] if row[test] is not None]
    texts = [*_idle(fed, kind), *(_scores(fed, kind, test, tested) if kind.labelled else ())]
    if fed["number_of_sites"]["unsupervised"] and kind.labelled and caution:
        texts.append(caution.format(labels=kind.card.labels))
    texts.append(protection(fed.get("protection") or {}))
    texts += [f"{text}: {fed[key]}; see the run's report." for key, text in INCIDENTS.items() if fed[key]]
    if fed["private_tensors_of"]:
        owner = fed["private_tensors_of"]
        texts.append(f"Layers of {owner} alone are in it: it fits the images and the readers of that site best.")
        if others := [row["site"] for row in tested if owner not in (row["site"], row.get("decoder_of"))]:
            texts.append(f"{join(others)} had other layers when tested: those scores are not this model's.")
    if fed.get("private_tensors_mean"):
        texts.append("It is for a site that took no part in the training: nobody trained all its layers together.")
        if others := [row["site"] for row in tested if row.get("decoder_of") != ALL_SITES]:
            texts.append(f"{join(others)} had other layers when tested: those scores are not this model's.")
    if ids := fed.get("site_facts_needed"):
        words = f" with {join([f'`{name}`' for name in fed['words_needed']])}" if fed["words_needed"] else ""
        listed = join([f"`{id}`" for id in ids])
        texts.append(
            f"It is for one site: set {listed}{words} in `configs/inference.yaml` to what that site says of itself."
        )
    return texts


def _idle(fed: Mapping[str, Any], kind: Kind) -> list[str]:
    """Name those who were to train and contributed nothing."""
    idle = [row["site"] for row in fed["sites"] if row.get("contributed") == 0]
    roles = [row.get("contributed") for row in fed["sites"] if row["role"] == "supervised"]
    texts = [f"No update of {join(idle)} entered the model."] if idle else []
    if kind.labelled and roles and not any(count != 0 for count in roles):
        texts.insert(0, f"**It learnt from no {kind.card.labels}**: no site that has some contributed to it.")
    return texts


def _scores(fed: Mapping[str, Any], kind: Kind, test: str, tested: list[Mapping[str, Any]]) -> list[str]:
    texts = []
    if not tested:
        texts.append("No site has tested this model.")
    else:
        worst, cases = min(tested, key=lambda row: row[test]), sum(row["test_cases"] for row in tested)
        what = count(cases, f"test {kind.card.case}")
        texts.append(f"{what} in all; the worst site, {worst['site']}, reaches {worst[test]:.3f}.")
    if unseen := [row["site"] for row in tested if row["role"] == "evaluate"]:
        texts.append(
            f"Only {join(unseen)} took no part in the training; expect such a score, or a lower one, elsewhere."
        )
    else:
        texts.append("No score comes from a site outside the training; expect lower ones elsewhere.")
    if untested := [row["site"] for row in fed["sites"] if row[test] is None]:
        texts.append(f"Not tested at {join(untested)}.")
    if "temperature" in fed:
        texts.append(_calibration(fed["temperature"], kind))
    return texts


def _calibration(temperature: float, kind: Kind) -> str:
    if temperature == 1:
        return "Probabilities are not calibrated (temperature 1): they rank images, and may be too certain."
    return (
        f"Probabilities are calibrated by one temperature, {temperature:.3f}, the mean of those that sites with "
        f"{kind.card.labels} fitted on their validation lists; elsewhere, with other shares of the classes, they may "
        "be off."
    )


def protection(facts: Mapping[str, Any]) -> str:
    """Promise about the training images, in one sentence."""
    clip, noise = facts.get("sites_that_clip", 0), facts.get("sites_with_noise", 0)
    nothing = "nothing is promised about what the model reveals of its training images"
    if not noise:
        did = f"{count(clip, 'site')} clipped the updates, none added noise" if clip else "No site reported any noise"
        return f"{did}: {nothing}."
    did = f"{count(noise, 'site')} added Gaussian noise to clipped updates"
    if facts.get("largest_epsilon") is not None and facts.get("delta"):
        did += f", at most ε = {plain_number(facts['largest_epsilon'])} at δ = {plain_delta(facts['delta'])}"
    return f"{did}. That protects a site's data as a whole, not single patients; of other sites {nothing}."
