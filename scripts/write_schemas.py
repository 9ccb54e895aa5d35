#!/usr/bin/env python3
"""Write the JSON Schemas by which an editor completes and checks FedMed's YAML files: docs/schema/*.json.

    scripts/write_schemas.py

To use one, let the first line of your file be, with the path or URL of the schema:

    # yaml-language-server: $schema=/path/to/FedMed/docs/schema/site.json
"""

import argparse
import json
from pathlib import Path

from pydantic import BaseModel

from fedmed.jobs.study import Study
from fedmed.provisioning.project_file import ProjectFile
from fedmed.settings.server import ServerFile
from fedmed.settings.site_file import SiteFile

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "schema"
MODELS: dict[str, type[BaseModel]] = {"site": SiteFile, "server": ServerFile, "project": ProjectFile, "study": Study}


def schemas() -> dict[str, str]:
    """Return the text of each schema by the name of its file."""
    dialect = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    found = {f"{name}.json": dialect | model.model_json_schema() for name, model in MODELS.items()}
    texts = {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in found.items()}
    return {name: text.replace("``", "`") for name, text in texts.items()}  # editors show Markdown


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    FOLDER.mkdir(exist_ok=True)
    for name, text in schemas().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        print(FOLDER / name)


if __name__ == "__main__":
    main()
