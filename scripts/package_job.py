#!/usr/bin/env python3
"""Write an NVFlare job for your own sites from a study, one YAML file, or from that of another job.

scripts/package_job.py --init consistency > my_study.yaml      # a commented study for a laptop; --size paper: a GPU
scripts/package_job.py my_study.yaml jobs/my_study
scripts/package_job.py my_study.yaml jobs/short --set rounds=2 --set overrides.unsupervised.confidence=0.8
scripts/package_job.py my_study.yaml jobs/prox --algorithm fedprox --set name=prox
scripts/package_job.py jobs/covid_fssl jobs/fssl_prox --algorithm fedprox --set name=fssl_prox
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from fedmed.errors import FedMedError, JobError
from fedmed.methods.find_method import algorithms, installed
from fedmed.plain_text import print_in_any_terminal
from fedmed.settings.server import load_server
from fedmed.yaml_limits import load_limited


def parse_arguments(argv: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("study", nargs="?", type=Path, metavar="STUDY", help="the study's YAML, or a job folder")
    add("folder", nargs="?", type=Path, metavar="JOB", help="job folder to write")
    methods = ", ".join(installed())
    add("--init", metavar="METHOD", help=f"print a commented study of a method: {methods}, or a class path")
    add(
        "--size",
        choices=["small", "paper"],
        default="small",
        help="of the study that --init prints: what a laptop ends in minutes (default), or the paper's, for a GPU; "
        "scripts/check_site.py --job measures what it costs a site",
    )
    add(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="another value for a key of the study, dots between nested keys (repeatable)",
    )
    add(
        "--algorithm",
        metavar="NAME",
        help=f"add an algorithm, as 'algorithm: NAME' in the study does: {', '.join(algorithms())}, or a class path",
    )
    add("--replace", action="store_true", help="replace an existing job folder")
    arguments = parser.parse_args(argv)
    if not arguments.init and not (arguments.study and arguments.folder):
        parser.error("give a study and the job folder to write, or --init METHOD")
    return arguments


def read_text(path: Path, allowed: Sequence[str] = ()) -> str:
    """Text of a study, or of that of a job folder; ``allowed``: classes of methods that this machine's settings list.

    Raises:
        JobError: it cannot be read, or the folder is not a sound job.
    """
    if path.is_dir():
        from fedmed.jobs.job_folder import read_job

        return read_job(path, allowed).text
    if path.name == "meta.json":
        raise JobError(f"{path} is a file of a job, not a study; give the job's folder, {path.parent}")
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(
            f"{path} cannot be read ({error}); scripts/package_job.py --init METHOD writes a study"
        ) from error


def with_settings(text: str, settings: Sequence[str], source: str) -> str:
    """The study with other values: ``KEY=VALUE``, dots between nested keys.

    Raises:
        JobError: a setting without a value, or inside something that is not a mapping.
    """
    from fedmed.jobs.study_text import changed_text

    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not all(keys := path.split(".")):
            raise JobError(f"--set: '{setting}' is not KEY=VALUE")
        whole = _mapping(load_limited(text), source)
        inner = whole
        for key in keys[:-1]:
            inner[key] = dict(_mapping(inner.get(key) or {}, f"--set {path}"))
            inner = inner[key]
        inner[keys[-1]] = parse_value(value)
        text = changed_text(text, {keys[0]: whole[keys[0]]}, source)
    return text


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise JobError(f"{where}: {value!r} does not hold 'key: value' lines")
    return value


def parse_value(text: str) -> Any:
    """YAML, except that 1e-4 is a number, as everywhere else."""
    try:
        value = load_limited(text)
    except yaml.YAMLError as error:
        raise JobError(f"--set: {text!r} is not a YAML value ({error})") from error
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    # Here and not above: they take seconds to load, for which --help need not wait.
    from fedmed.jobs.example import example
    from fedmed.jobs.job import Job
    from fedmed.jobs.job_folder import write_job

    try:
        allowed = load_server().allowed_classes
        if arguments.init:
            print(example(arguments.init, arguments.size, allowed), end="")
            return 0
        chosen = [f"algorithm={arguments.algorithm}"] if arguments.algorithm else []
        text = with_settings(read_text(arguments.study, allowed), [*chosen, *arguments.set], str(arguments.study))
        job = Job.parse(text, str(arguments.study), allowed)
        folder = write_job(job, arguments.folder, arguments.replace)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    then = "" if job.study.custom else "; submit it: docs/deployment.md"
    print(f"job written to {folder}; every site needs its YAML. Simulate it: scripts/simulate.py {folder}{then}")
    if extras := sorted({*job.exchange.names, *job.method.with_update(needed=True)}):
        print(f"beside the model it asks sites for {', '.join(extras)}. They stay where a site's YAML lacks the line")
        print(f"    privacy: {{allowed_extras: [{', '.join(extras)}]}}")
        print("scripts/check_site.py SITE --job JOB names those of a site; docs/privacy.md says what they tell")
    return 0


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
