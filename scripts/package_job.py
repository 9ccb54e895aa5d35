#!/usr/bin/env python3
"""Write an NVFlare job for your own sites."""

import argparse
import sys
from pathlib import Path

import yaml

from fedmed.aggregation.robust import RULES
from fedmed.aggregation.self_adaptive import FORMS
from fedmed.errors import FedMedError, JobError
from fedmed.jobs.app_configs import METHODS
from fedmed.jobs.plan import SELECTIONS
from fedmed.jobs.rule_spec import WEIGHTINGS
from fedmed.jobs.specification import JobSpec, write_job

NAMED_WEIGHTINGS = [name for name in WEIGHTINGS if name != "reported"]  # which also needs the name of a value
EXAMPLE = """\
examples:
  scripts/package_job.py jobs/my_study --sites hospital_a:supervised hospital_b:unsupervised hospital_c:evaluate \\
      --rounds 50 --steps 400 --warm-start-rounds 25
  scripts/package_job.py jobs/my_pretraining --sites hospital_a:unsupervised hospital_b:unsupervised \\
      --bundle cxr_classification --overlay pretrain --method contrastive --rounds 200 --epochs 1 \\
      --weighting self_adaptive --exchange-from 50 --select last --no-evaluate
"""


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=EXAMPLE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("folder", type=Path, help="job folder to write; its name becomes the job's name")
    add("--sites", nargs="+", required=True, metavar="SITE:ROLE[:WEIGHT]", help="supervised, unsupervised or evaluate")
    add("--bundle", default="covid_ct_segmentation")
    add(
        "--overlay", action="append", default=[], help="overlay of the bundle (repeatable); none = the paper's settings"
    )
    add("--rounds", type=int, default=50, help="federated rounds (paper: 50)")
    add("--steps", type=int, help="optimizer steps a site and round (default: 400, as in the paper)")
    add("--epochs", type=float, help="passes of a site over its own images a round, instead of --steps")
    add("--method", default="consistency", choices=METHODS, help="what sites without labels do")
    add("--warm-start-rounds", type=int, default=0, help="first rounds that unsupervised sites sit out (paper: 25)")
    add("--warm-start-sharing", help="sharing group in those rounds, e.g. full before a partial one")
    add("--sharing", default="full", help="full, or a partial sharing group of the bundle: final, block_10, block_6")
    add("--buffers", default="average", choices=["average", "pooled", "local"], help="BatchNorm statistics")
    add("--literal", action="store_true", help="Eq. 3 as printed, without normalising user weights")
    add("--weighting", default="iterations", choices=NAMED_WEIGHTINGS, help="what a site counts by in the mean")
    add("--form", choices=FORMS, help="of --weighting self_adaptive (default: gap)")
    add("--floor", type=float, help="of --weighting self_adaptive: the least that a site counts (default: 0)")
    add(
        "--exchange-from",
        type=int,
        metavar="ROUND",
        help="from this round on (counted from 0) sites learn with statistics of the others' features; what of them "
        "may leave is for each site to allow ('privacy.allowed_extras' in its YAML)",
    )
    add("--exchange", nargs="+", default=["mu", "sigma", "n"], metavar="NAME", help="what they send of them")
    add("--select", default="best", choices=SELECTIONS, help="the result: what labelled sites score best, or the last")
    add("--no-evaluate", action="store_true", help="do not score the result on the sites' test lists")
    add("--rule", default="mean", choices=RULES, help="how updates become one; the last two distrust single sites")
    add("--trim", type=float, help="fraction of sites that trimmed_mean drops at each end (default: 0.2)")
    add("--clip-norm", type=float, help="scale an update with a larger L2 norm down to this (default: no bound)")
    add("--min-clients", type=int, help="accepted updates that a round needs (default: all its sites)")
    add("--task-timeout", type=int, default=0, help="seconds that a site may take for one task (default: no limit)")
    add("--validate-every", type=int, default=1, metavar="N", help="labelled sites validate every N rounds")
    add(
        "--release-from",
        metavar="SITE",
        help="with partial sharing, score sites without a decoder with this labelled site's; it must allow that itself "
        "('allow_release: true' in its YAML)",
    )
    add("--optimizer-state", default="persist", choices=["persist", "reset"], help="of a site, across its rounds")
    add("--checkpoint", help="file in $FEDMED_MODELS or the bundle's models/ to start from, at the server")
    add(
        "--checkpoint-tensor",
        action="append",
        default=[],
        metavar="PATTERN",
        help="regular expression of what is taken from it, such as '^encoder\\.' (repeatable; none = everything)",
    )
    add("--seed", type=int, default=0)
    add(
        "--set",
        nargs="*",
        default=[],
        metavar="[ROLE.]ID=VALUE",
        help="plain values of the bundle's overridable settings",
    )
    add(
        "--no-custom",
        action="store_true",
        help="leave the folders custom/ out, for sites that let jobs bring no code: 'class_allow_list' in the startup "
        "kits of server and sites must list FedMed's classes, as scripts/provision.sh writes them. The simulator needs "
        "the folders",
    )
    add("--replace", action="store_true", help="replace an existing job folder")
    return parser.parse_args(argv)


def parse_sites(texts: list[str]) -> tuple[dict[str, str], dict[str, float]]:
    sites, weights = {}, {}
    for text in texts:
        name, *rest = text.split(":")
        if not name or not rest or len(rest) > 2 or name in sites:
            raise JobError(f"--sites: '{text}' is not a new SITE:ROLE or SITE:ROLE:WEIGHT")
        sites[name] = rest[0]
        if len(rest) == 2:
            try:
                weights[name] = float(rest[1])
            except ValueError as error:
                raise JobError(f"--sites: the weight in '{text}' is not a number") from error
    return sites, weights


def parse_overrides(texts: list[str]) -> dict[str, dict]:
    roles = ("supervised", "unsupervised", "evaluate")
    overrides: dict[str, dict] = {role: {} for role in roles}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise JobError(f"--set: '{text}' is not ID=VALUE")
        role, dot, id = key.partition(".")
        for target in [role] if dot and role in roles else roles:
            overrides[target][id if dot and role in roles else key] = parse_value(value)
    return overrides


def parse_value(text: str) -> object:
    """YAML, except that 1e-4 is a number, as everywhere else."""
    value = yaml.safe_load(text)
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    try:
        sites, weights = parse_sites(arguments.sites)
        asked = {"from_round": arguments.exchange_from, "names": arguments.exchange}
        exchange = asked if arguments.exchange_from is not None else None
        spec = JobSpec(
            name=arguments.folder.name,
            sites=sites,
            rounds=arguments.rounds,
            steps=arguments.steps or (400 if arguments.epochs is None else None),
            epochs=arguments.epochs,
            method=arguments.method,
            bundle=arguments.bundle,
            overlays=arguments.overlay,
            overrides=parse_overrides(arguments.set),
            warm_start_rounds=arguments.warm_start_rounds,
            warm_start_sharing=arguments.warm_start_sharing,
            sharing=arguments.sharing,
            buffers=arguments.buffers,
            normalise=not arguments.literal,
            user_weights=weights,
            rule=arguments.rule,
            trim=arguments.trim,
            clip_norm=arguments.clip_norm,
            min_clients=arguments.min_clients,
            validate_every=arguments.validate_every,
            release_from=arguments.release_from,
            optimizer_state=arguments.optimizer_state,
            select=arguments.select,
            evaluate=not arguments.no_evaluate,
            exchange=exchange,
            weighting=arguments.weighting,
            form=arguments.form,
            floor=arguments.floor,
            checkpoint=arguments.checkpoint,
            checkpoint_tensors=arguments.checkpoint_tensor,
            task_timeout=arguments.task_timeout,
            seed=arguments.seed,
            custom=not arguments.no_custom,
        )
        folder = write_job(spec, arguments.folder, arguments.replace)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    then = f"Simulate it: scripts/simulate.py {folder}" if spec.custom else "Submit it: docs/deployment.md"
    print(f"job written to {folder}; every site needs its YAML. {then}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
