"""``fedmed study``: from a commented YAML to the job folder that is submitted."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedmed.commands.options import AsJson, Replace, command, group
from fedmed.files import private_files

if TYPE_CHECKING:
    from fedmed.jobs.job import Job
    from fedmed.recovery.resumed_job import Resumed

app = group("A study: write one, check it, make its job folder, continue a run of real sites.")
Set = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Another value for a key of the study, dots between nested keys. Repeatable."
    ),
]
Algorithm = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Add an algorithm, as 'algorithm: NAME' in the study does, or a class path."),
]


@command(app)
def init(
    method: Annotated[
        str, typer.Argument(metavar="METHOD", help="Such as consistency, or a class path; without it, the list.")
    ] = "",
    size: Annotated[
        Literal["small", "paper"],
        typer.Option(help="What a laptop ends in minutes, or the paper's, for a GPU."),
    ] = "small",
) -> None:
    """Print a commented study of a method, into which you write your sites.

      fedmed study init consistency > my_study.yaml
      fedmed study init fedcy --size paper > my_study.yaml

    'fedmed site check SITE --job my_study.yaml' measures what it costs a site.
    """
    from fedmed.jobs.example import example
    from fedmed.settings.server import load_server

    print(example(method, size, load_server().allowed_classes), end="")


@command(app)
def check(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The study's YAML, or a job folder.")],
    settings: Set = [],
    algorithm: Algorithm = None,
    as_json: AsJson = False,
) -> None:
    """Say what a study is, what it asks of its sites, and what they must install; or all that is wrong with it.

    fedmed study check my_study.yaml

    No site's data are read: 'fedmed simulate' reads them before it starts, and at a site 'fedmed site check SITE
    --job STUDY'.
    """
    job = _job(study, settings, algorithm)
    from fedmed.jobs.study_summary import summary, summary_lines

    facts = summary(job)
    print(json.dumps(facts, indent=2) if as_json else "\n".join(summary_lines(facts)))


@command(app)
def package(
    study: Annotated[Path, typer.Argument(metavar="STUDY", help="The study's YAML, or a job folder.")],
    folder: Annotated[Path, typer.Argument(metavar="JOB", help="Job folder to write.")],
    settings: Set = [],
    algorithm: Algorithm = None,
    replace: Replace = False,
) -> None:
    """Write the NVFlare job of a study, for your own sites; or of another job's study, changed.

    fedmed study package my_study.yaml jobs/my_study
    fedmed study package my_study.yaml jobs/short --set rounds=2 --set overrides.unsupervised.confidence=0.8
    fedmed study package jobs/covid_fssl jobs/fssl_prox --algorithm fedprox --set name=fssl_prox
    """
    job = _job(study, settings, algorithm)
    from fedmed.jobs.job_folder import write_job

    written = write_job(job, folder, replace)
    then = "" if job.study.custom else "; submit it: docs/deployment.md"
    print(f"job written to {written}; every site needs its YAML. Simulate it: fedmed simulate {written}{then}")
    if extras := job.extras:
        print(f"beside the model it asks sites for {', '.join(extras)}. They stay where a site's YAML lacks the line")
        print(f"    privacy: {{allowed_extras: [{', '.join(extras)}]}}")
        print("fedmed site check SITE --job JOB names those of a site; docs/privacy.md says what they tell")


def _job(study: Path, settings: list[str], algorithm: str | None) -> "Job":
    from fedmed.jobs.named_job import study_or_job

    place = study_or_job(study)
    from fedmed.jobs.job import Job
    from fedmed.jobs.study_settings import text_of, with_settings
    from fedmed.settings.server import load_server

    allowed = load_server().allowed_classes
    chosen = [f"algorithm={algorithm}"] if algorithm else []
    text = with_settings(text_of(place, allowed), [*chosen, *settings], str(study))
    return Job.parse(text, str(study), allowed)


@command(app)
def plan(
    source: Annotated[
        Path,
        typer.Argument(metavar="RUN_OR_STUDY", help="A run with 'fingerprint: true', or a study whose sites are here."),
    ],
    memory: Annotated[
        float | None, typer.Option(metavar="GIB", min=0.1, help="Memory of a step, in place of what the sites told.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option(metavar="STUDY", help="Write the plan into the overrides of this study's YAML.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Propose spacing, patch and batch from what the sites told of their images and memory, with the reason of each.

      fedmed study plan runs/my_study
      fedmed study plan my_study.yaml --write my_study.yaml

    Nothing changes without --write. 'fedmed site check SITE --job STUDY' measures what a step then really takes.
    """
    from fedmed.checks.planned_study import plan_lines, plan_of, written
    from fedmed.settings.server import load_server

    allowed = load_server().allowed_classes
    planned = plan_of(source, memory, allowed)
    made = {"settings": planned.plan.settings, "reasons": planned.plan.reasons, "missing": dict(planned.missing)}
    print(json.dumps(made, indent=2) if as_json else "\n".join(plan_lines(planned)))
    if write:
        written(planned, write, allowed)
        print(f"written into 'overrides' of {write}", file=sys.stderr if as_json else sys.stdout)


@command(app)
@private_files()
def resume(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Downloaded result, server's run folder, or job id.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Job folder to write.")],
    job: Annotated[
        Path | None, typer.Option(help="The old job's folder. Default: the one in the downloaded result.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of the whole run, if it is to become longer.")] = None,
    allow_fresh: Annotated[
        list[str],
        typer.Option(
            metavar="SITE",
            help="This site lost its private state and starts with a new one; the run then differs from an "
            "uninterrupted one. Repeatable.",
        ),
    ] = [],
    back: Annotated[
        bool,
        typer.Option(
            "--back",
            help="Go on from the round before the last good one, since a site's log says that its state is damaged.",
        ),
    ] = False,
    replace: Replace = False,
) -> None:
    """Write the job that continues an interrupted run of a real federation.

      fedmed study resume transfer/JOB_ID jobs/my_study_2
      fedmed study resume /opt/kits/server/JOB_ID jobs/my_study_2 --job jobs/my_study

    RUN is the downloaded result of the job that was aborted or failed, or, when the server itself went down, the job's
    folder in the server's workspace. If nobody can reach that folder, give the job's id alone: a restarted server finds
    it. Submit the new job as any other. Each site finds its own private state in the folder of the old job, which must
    stay where it is. A run in the simulator is continued by 'fedmed simulate JOB --resume'.
    """
    from fedmed.recovery.resumed_job import find_interrupted, write_resumed

    interrupted = find_interrupted(run, job)
    show(write_resumed(interrupted, out, rounds=rounds, fresh=allow_fresh, replace=replace, back=back))


def show(resumed: "Resumed") -> None:
    """Print what the job will do, and what it needs."""
    print(f"{resumed.folder} continues job {resumed.id}")
    if resumed.done is None:
        print("from the round after the last good one; the server finds it in its own folder of that job")
    elif resumed.done == resumed.rounds:
        print(f"all {resumed.rounds} rounds are done: the models are scored and tested, nothing is trained")
    else:
        print(f"from round {resumed.done + 1} of {resumed.rounds}; {resumed.done} are done")
    for site, round in sorted(resumed.private.items()):
        print(f"    {site} needs its own state of round {round + 1}, in {resumed.id}/fedmed/state of its kit")
    print("Submit it as any other job. The sites and the server must use the same version of the bundle as before.")
