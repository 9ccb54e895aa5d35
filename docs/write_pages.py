#!/usr/bin/env python3
"""Write what the documentation takes from the code: the JSON Schemas docs/schema/*.json, and docs/jobs.md.

    docs/write_pages.py

By a schema an editor completes and checks FedMed's YAML files. To use one, let the first line of your file be, with
the path or URL of the schema:

    # yaml-language-server: $schema=/path/to/FedMed/docs/schema/site.json

docs/jobs.md is the table of all jobs and studies: what the first lines of each say, and its sites, rounds and steps.
"""

import argparse
import json
from collections import Counter
from itertools import groupby, takewhile
from pathlib import Path

from pydantic import BaseModel

from fedmed.jobs.study import Study
from fedmed.jobs.study_summary import length
from fedmed.provisioning.project_file import ProjectFile
from fedmed.settings.server import ServerFile
from fedmed.settings.site_file import SiteFile

CHECKOUT = Path(__file__).resolve().parents[1]
MODELS: dict[str, type[BaseModel]] = {"site": SiteFile, "server": ServerFile, "project": ProjectFile, "study": Study}
ROLES = {"supervised": "with labels", "unsupervised": "without", "evaluate": "only scored"}
HEAD = """\
# All jobs and studies

A folder of `jobs/` is a job of NVIDIA FLARE: run it with `fedmed simulate jobs/NAME` or `nvflare simulator
jobs/NAME`. A file of `studies/` is the study alone: `fedmed simulate studies/NAME.yaml` runs it, as it runs your
own, and `fedmed study package studies/NAME.yaml JOB` writes the job folder. Those that end in `_paper` have the
published network and schedule and need a GPU; the others end on two CPU cores in minutes, on synthetic hospitals. What
each is stands in its first lines; [methods](methods/) and [algorithms](algorithms.md) say more.
`docs/write_pages.py` writes this page.
"""


def schemas() -> dict[str, str]:
    """Return the text of each schema by its path below docs/."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    documents = {f"schema/{name}.json": dialect | model.model_json_schema() for name, model in MODELS.items()}
    texts = {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in documents.items()}
    return {name: text.replace("``", "`") for name, text in texts.items()}  # editors show Markdown


def jobs_page(checkout: Path = CHECKOUT) -> str:
    """Return the page of all jobs and studies, a table for each bundle."""
    from fedmed.jobs.job_folder import read_job  # loads MONAI, for which --help does not wait

    paths = [*sorted((checkout / "jobs").iterdir()), *sorted((checkout / "studies").glob("*.yaml"))]
    rows = sorted(
        (job.study.bundle, path.relative_to(checkout).as_posix(), _row(job.study, job.text))
        for path in paths
        if (job := read_job(path))
    )
    text = HEAD
    for bundle, of_bundle in groupby(rows, key=lambda row: row[0]):
        text += f"\n## [{bundle}](../bundles/{bundle}/docs/README.md)\n\n| run | what | sites | length |\n"
        text += "|---|---|---|---|\n"
        text += "".join(f"| `{name}` | {cells} |\n" for _, name, cells in of_bundle)
    return text


def _row(study: Study, text: str) -> str:
    says = takewhile(lambda line: line.startswith("#"), text.splitlines())
    what = " ".join(line.lstrip("# ").strip() for line in says).replace("|", "\\|")
    counts = Counter(study.sites.values())
    sites = ", ".join(f"{counts[role]} {words}" for role, words in ROLES.items() if counts[role])
    return f"{what} | {sites} | {length(study.rounds, study.steps, study.epochs)}"


def pages() -> dict[str, str]:
    """Return all texts by their paths below docs/."""
    return {**schemas(), "jobs.md": jobs_page()}


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    for name, text in pages().items():
        path = CHECKOUT / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
