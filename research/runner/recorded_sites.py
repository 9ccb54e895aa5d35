"""Sites of a table that are made of a folder of recorded operations, when a run first needs them."""

import hashlib
import logging
from pathlib import Path
from typing import Annotated

from filelock import FileLock
from pydantic import Field

from fedmed.data.prepare.clients import one_a_video
from fedmed.data.prepare.video_inspect import WantedVideos
from fedmed.data.prepare.video_site import find_recordings, prepare_video_site
from fedmed.errors import DataError, JobError
from fedmed.files import data_root, fedmed_home
from fedmed.settings.site import SiteConfig, load_file
from fedmed.settings.yaml_model import YamlModel

log = logging.getLogger("fedmed.demo")

Seconds = Annotated[float, Field(gt=0)]


class RecordedSites(YamlModel):
    """A site of each video of a folder, cut into blocks: what ``fedmed prepare video --each --blocks`` makes.

    They are kept in ``$FEDMED_HOME/prepared``; videos and frames stay where they are.
    """

    folder: str  # below $FEDMED_DATA
    site: str  # what the sites' names begin with
    blocks: Annotated[list[Seconds], Field(min_length=2, max_length=2)]  # seconds of a block, of the gap after it
    leave_out: list[str] = []  # phases whose frames are left out

    def settings_of(self, site: str) -> SiteConfig:
        """Settings of one of the sites: one thread, so that several runs can work at a time.

        Raises:
            JobError: the folder is not there.
            DataError: no video of it makes this site, or the video cannot be used.
        """
        folder = (data_root("../shared/data") / self.folder).resolve()
        if not folder.is_dir():
            raise JobError(
                f"the recordings of site '{site}' are not there: {folder} is not a folder; point FEDMED_DATA to the "
                f"folder that holds '{self.folder}'"
            )
        made_of = hashlib.sha256(f"{folder}\0{self.model_dump_json()}".encode()).hexdigest()[:12]
        out = fedmed_home() / "prepared" / f"{self.folder}-{made_of}" / site
        settings = out / f"{site}.yaml"
        if not settings.is_file():
            out.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(out.parent / f".{site}.lock"):
                if not settings.is_file():
                    log.info("making the site %s of %s, in %s; this happens once", site, folder, out)
                    self._make(folder, site, out)
        return load_file(settings, site, threads=1)

    def _make(self, folder: Path, site: str, out: Path) -> None:
        seconds, gap = self.blocks
        wanted = WantedVideos(leave_out=tuple(self.leave_out), blocks=(seconds, gap))
        clients = {client.site: client for client in one_a_video(self.site, find_recordings(folder, wanted)[2])}
        if site not in clients:
            raise DataError(f"{folder}: no video makes the site '{site}'; there are {', '.join(clients) or 'none'}")
        prepare_video_site(folder, out, site, wanted, client=clients[site])
