"""What the bundle of a job wants of a site: which images, which classes, and what is to leave beside the model."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedmed.bundles.contract import Use
from fedmed.bundles.load import Bundle
from fedmed.bundles.network import parsed
from fedmed.checks.part_in_job import PartInJob
from fedmed.checks.site_findings import SiteFinding
from fedmed.errors import BundleError, FedMedError
from fedmed.kinds.kind import Kind
from fedmed.kinds.sound_bundle import check_bundle
from fedmed.settings.site import SiteConfig


@dataclass(frozen=True)
class Wanted:
    """What a job's bundle wants; nothing is known without a job, or where the bundle cannot be opened.

    Attributes:
        name, digest, version: of the installed bundle.
        kind: of the task.
        classes: names of classes, if labels are such.
        size: pixels of the square that an image is fitted into, if it is.
        least: images without which a site sends no statistics of them.
    """

    name: str | None = None
    digest: str | None = None
    version: str | None = None
    kind: Kind | None = None
    classes: tuple[str, ...] | None = None
    size: int | None = None
    least: int | None = None


def what_is_wanted(work: PartInJob | None, site: SiteConfig) -> tuple[Wanted, list[SiteFinding]]:
    """Open the job's bundle as it is installed here; a bundle that cannot be opened is a finding."""
    if work is None:
        return Wanted(), []
    try:
        args = work.args
        bundle = Bundle(args["bundle"], args.get("overlays") or (), args.get("overrides"), site.bundles)
        parser = bundle.parser(device="cpu", site_min_images=site.privacy.extras_min_images)
        kind = check_bundle(bundle, Use(work.role, True, work.chooses, work.scores, bool(work.exchanged)))
        least = (
            parsed(parser, "metadata#least") if work.exchanged and parser.get("metadata#least") is not None else None
        )
        config: Mapping[str, Any] = parser.config
    except (BundleError, KeyError) as error:
        text = str(error) if isinstance(error, FedMedError) else f"the job names no {error}; ask the study lead"
        return Wanted(), [SiteFinding("training", "bundle", text)]
    classes, size = config.get("classes"), config.get("image_size")
    return Wanted(
        bundle.name,
        bundle.digest,
        bundle.version,
        kind,
        tuple(map(str, classes)) if isinstance(classes, list) else None,
        size if type(size) is int else None,
        least,
    ), []


def look_at_exchange(work: PartInJob, wanted: Wanted, site: SiteConfig, images: int) -> Iterator[SiteFinding]:
    """Say which values that the job asks for stay here, and whether there are images enough for the others.

    Args:
        work: the site's part in the job.
        wanted: of its bundle.
        site: its limits.
        images: that the site trains on.
    """
    if kept := [name for name in work.extras if name not in site.privacy.allowed_extras]:
        listed = ", ".join(sorted({*site.privacy.allowed_extras, *work.extras}))
        text = f"the job asks for {', '.join(kept)}, and 'privacy.allowed_extras' in {site.source} does not list "
        text += f"{'it' if len(kept) == 1 else 'them'}; to send {'it' if len(kept) == 1 else 'them'} write "
        text += f"'privacy: {{allowed_extras: [{listed}]}}' (docs/privacy.md says what they tell)"
        yield SiteFinding("training", "extras", text)
    if wanted.least is not None and images < wanted.least:
        text = f"{images} images are fewer than the {wanted.least} from which a site sends statistics of its features"
        yield SiteFinding("training", "few_images", f"{text}; others do not learn from this site, or list more images")
