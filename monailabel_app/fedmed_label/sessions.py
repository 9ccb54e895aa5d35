"""MONAI Label's images of single clients, without its archives."""

import re
from pathlib import Path
from typing import Any

from monailabel.utils.sessions import Sessions

from fedmed.errors import DataError
from fedmed.labelling.uploads import check_upload
from fedmed_label.datastore import removed_if_refused

SESSION = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class CheckedSessions(Sessions):
    """Sessions of one image each, which is opened before it is kept.

    MONAI Label unpacks what a client sends with ``shutil.unpack_archive``, which follows ``..``, absolute names and
    links; and it takes whatever a client calls a session as a part of a path.
    """

    def add_session(
        self, data_file: str, expiry: int = 0, uncompress: bool = False, session_id: str | None = None
    ) -> tuple[str, Any]:
        """Keep an image.

        Raises:
            DataError: an archive, several files, or no image; nothing is kept.
        """
        with removed_if_refused(data_file):
            if uncompress or Path(data_file).is_dir():
                raise DataError("archives and several files are not taken; send one image")
            check_upload(Path(data_file))
        return super().add_session(data_file, expiry, False, session_id)

    def get_session(self, session_id: str, update_ts: bool = True, fetch_cache: bool = True) -> Any:
        """Facts of a session; None of one that is not there."""
        if not SESSION.fullmatch(session_id):
            return None
        return super().get_session(session_id, update_ts, fetch_cache)

    def remove_session(self, session_id: str) -> None:
        """Remove a session's image."""
        if SESSION.fullmatch(session_id):
            super().remove_session(session_id)
