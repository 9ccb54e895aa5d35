"""A site's consent to the values that a job asks for beside the model, written into its own YAML."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from fedmed.errors import SiteConfigError
from fedmed.files import write_atomically
from fedmed.jobs.study_text import changed_text
from fedmed.settings.site import SiteConfig, load_file


def allow_extras(path: Path, site: SiteConfig, names: Sequence[str]) -> Path:
    """Add names to ``privacy.allowed_extras`` of a site's YAML; all else of it stays, comments too.

    Args:
        path: the YAML; what it was stays beside it, as ``<name>.before``.

    Returns:
        The YAML.

    Raises:
        SiteConfigError: it cannot be read or written, or would not be sound; then it stays as it was.
    """
    path = path.expanduser().absolute()
    try:
        text = path.read_text(encoding="utf-8")
        listed = [*site.privacy.allowed_extras, *names]
        changed = changed_text(text, {"privacy.allowed_extras": listed}, str(path))
        shutil.copy2(path, path.with_name(f"{path.name}.before"))
        write_atomically(path, lambda stream: stream.write(changed.encode()))
    except OSError as error:
        raise SiteConfigError(f"{path} cannot be changed ({error.strerror}); add {', '.join(names)} by hand") from error
    if list(load_file(path, site.site).privacy.allowed_extras) != listed:
        shutil.copy2(path.with_name(f"{path.name}.before"), path)
        raise SiteConfigError(f"{path}: privacy.allowed_extras could not be changed; add {', '.join(names)} by hand")
    return path
