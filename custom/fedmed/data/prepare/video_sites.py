"""One or several sites of a folder of recorded operations."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fedmed.data.prepare.clients import SiteRecordings, one_a_video, read_clients, require_tests, split_by_edge
from fedmed.data.prepare.console import print_site, progress
from fedmed.data.prepare.report import table
from fedmed.data.prepare.video_inspect import WantedVideos
from fedmed.data.prepare.video_site import find_recordings, prepare_video_site
from fedmed.errors import DataError
from fedmed.files import fedmed_home
from fedmed.plain_text import in_terminal


@dataclass(frozen=True)
class VideoFolder:
    """Request for sites of a folder of videos; see :func:`fedmed.data.prepare.video_site.prepare_video_site`."""

    folder: Path
    out: Path
    site: str
    wanted: WantedVideos
    fractions: Sequence[float]
    seed: int
    workers: int
    copy: bool
    own_patients: bool

    @property
    def parent(self) -> Path:
        """Folder in which several sites get one each."""
        return self.out if self.out != fedmed_home() / "sites" / self.site else self.out.parent

    def prepare(self, out: Path, site: str, client: SiteRecordings | None = None) -> None:
        """Prepare one site, print what was used and what was not; DataError: it cannot be made."""
        prepared = prepare_video_site(
            self.folder, out, site, self.wanted, fractions=self.fractions, seed=self.seed, workers=self.workers,
            copy=self.copy, track=progress("Streaming videos"), client=client, own_patients=self.own_patients,
        )  # fmt: skip
        print_site(prepared, site)


def prepare_videos(
    given: VideoFolder, each: bool, clients: Path | None, by_edge: bool, limits: tuple[float, float] | None
) -> None:
    """Prepare one site; or several, where one that cannot be made leaves the others.

    Args:
        each: a site of each video.
        clients: YAML of sites and their videos.
        by_edge: three sites by the width of the black edge; ``limits``: shares of the width between them.

    Raises:
        DataError: none could be made, or not all of those that ``clients`` or the edges name.
    """
    if not (each or by_edge or clients):
        given.prepare(given.out, given.site)
        return
    made, sites = 0, _sites(given, each, clients, limits)
    for client in sites:
        try:
            given.prepare(given.parent / client.site, client.site, client)
            made += 1
        except DataError as error:
            print(f"site '{client.site}' is not made: {error}", file=sys.stderr)
    if not made or (made < len(sites) and not each):
        raise DataError(f"{given.folder}: {made} of {len(sites)} sites could be made")


def _sites(
    given: VideoFolder, each: bool, clients: Path | None, limits: tuple[float, float] | None
) -> list[SiteRecordings]:
    """Videos of each site; measured edges are printed, and written below the parent."""
    recordings = find_recordings(given.folder, given.wanted)[2]
    if each:
        return one_a_video(given.site, recordings)
    if clients:
        return read_clients(clients, given.site, recordings)
    sites, rows, said = split_by_edge(recordings, given.site, limits, given.workers, progress("Measuring black edges"))
    require_tests(sites, recordings, given.fractions)
    print(*map(in_terminal, said), sep="\n")
    given.parent.mkdir(parents=True, exist_ok=True)
    (given.parent / f"{given.site}_black_edges.csv").write_bytes(
        table(rows[0], (dict(zip(rows[0], row, strict=True)) for row in rows[1:]))
    )
    return sites
