"""Text of a study, with other values for some of its keys."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from fedmed.errors import JobError
from fedmed.jobs.job_folder import read_job
from fedmed.jobs.study_text import changed_text
from fedmed.yaml_limits import load_limited


def text_of(path: Path, allowed: Sequence[str] = ()) -> str:
    """Text of a study, or of that of a job folder; ``allowed``: classes of methods that this machine's settings list.

    Raises:
        JobError: it cannot be read, or the folder is not a sound job.
    """
    if path.is_dir():
        return read_job(path, allowed).text
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise JobError(f"{path} cannot be read ({error}); 'fedmed study init METHOD' writes a study") from error


def with_settings(text: str, settings: Sequence[str], source: str) -> str:
    """The study with other values: ``KEY=VALUE``, dots between nested keys.

    Raises:
        JobError: a setting without a value, or inside something that is not a mapping.
    """
    for setting in settings:
        path, equals, value = setting.partition("=")
        if not equals or not all(keys := path.split(".")):
            raise JobError(f"--set: '{setting}' is not KEY=VALUE")
        whole = _mapping(load_limited(text), source)
        inner = whole
        for key in keys[:-1]:
            inner[key] = dict(_mapping(inner.get(key) or {}, f"--set {path}"))
            inner = inner[key]
        inner[keys[-1]] = _value(value)
        text = changed_text(text, {keys[0]: whole[keys[0]]}, source)
    return text


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise JobError(f"{where}: {value!r} does not hold 'key: value' lines")
    return value


def _value(text: str) -> Any:
    """YAML, except that 1e-4 is a number, as everywhere else."""
    try:
        value = load_limited(text)
    except yaml.YAMLError as error:
        raise JobError(f"--set: {text!r} is not a YAML value ({error})") from error
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value
