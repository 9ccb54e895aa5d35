"""Demands of a job's bundle on a site: which images, which classes, and what is to leave beside the model."""

from collections.abc import Iterator
from dataclasses import dataclass

from fedmed.bundles.bundle import Bundle
from fedmed.bundles.bundle_parser import parsed
from fedmed.bundles.contract import Use
from fedmed.bundles.site_facts import attributes_fault, attributes_needed
from fedmed.checks.part_in_job import PartInJob
from fedmed.checks.site_findings import SiteFinding
from fedmed.data.patients import TrainedOn
from fedmed.errors import BundleError, FedMedError
from fedmed.federation.opened_model import site_attributes
from fedmed.kinds.find_kind import check_bundle
from fedmed.kinds.kind import Kind
from fedmed.settings.site import SiteConfig


@dataclass(frozen=True)
class BundleDemands:
    """Demands of a job's bundle on a site; nothing is known without a job, or where the bundle cannot be opened.

    Attributes:
        bundle, kind: as it is installed here, and of the task.
        classes: names of classes, if labels are such.
        size: pixels of the square that an image is fitted into, if it is.
        rate: frames a second that are taken of a video, if it is so.
        batch: cases in a batch.
        fraction, fraction_seed: share of the labelled images that the job uses, and of the choice of them.
        least: images without which a site sends no statistics of them.
    """

    bundle: Bundle | None = None
    kind: Kind | None = None
    classes: tuple[str, ...] | None = None
    size: int | None = None
    batch: int | None = None
    fraction: float = 1.0
    fraction_seed: int = 0
    least: int | None = None
    rate: float | None = None


def read_demands(work: PartInJob | None, site: SiteConfig) -> tuple[BundleDemands, list[SiteFinding]]:
    """Open the job's bundle as it is installed here; a bundle that cannot be opened is a finding."""
    if work is None:
        return BundleDemands(), []
    try:
        bundle = work.job.bundle(work.role, site.bundles)
        facts = {"site_min_images": site.privacy.extras_min_images, **site_attributes(site)}
        parser = bundle.parser(device="cpu", **facts)
        kind = check_bundle(bundle, Use(work.role, True, work.chooses, work.scores, bool(work.exchanged)))
        asks = work.exchanged and parser.get("metadata#least") is not None
        least = parsed(parser, "metadata#least") if asks else None
        fault = attributes_fault(attributes_needed(parser), site.words)
    except (BundleError, KeyError) as error:
        text = str(error) if isinstance(error, FedMedError) else f"the job does not name {error}; ask the study lead"
        return BundleDemands(), [SiteFinding("training", "bundle", text)]
    classes = parser.get("classes")
    names = tuple(map(str, classes)) if isinstance(classes, list) else None
    size, batch = (n if type(n := parser.get(key)) is int else None for key in ("image_size", "batch_size"))
    fraction = share if type(share := parser.get("label_fraction")) in (int, float) else 1.0
    seed = said if type(said := parser.get("fraction_seed")) is int else 0
    rate = float(taken) if type(taken := parser.get("frame_rate")) in (int, float) else None
    findings = [SiteFinding("training", "words", f"{site.source}: bundle '{bundle.name}': {fault}")] if fault else []
    return BundleDemands(bundle, kind, names, size, batch, fraction, seed, least, rate), findings


def check_share(trains_on: TrainedOn, demands: BundleDemands) -> Iterator[SiteFinding]:
    """Say where a job trains on a part of the labelled images of the training list alone."""
    if trains_on.labelled < trains_on.listed:
        text = f"the job trains on {trains_on.words} ('label_fraction' is {demands.fraction:g}); "
        text += "for all the study says overrides: {supervised: {label_fraction: 1}}"
        yield SiteFinding("training", "few_labels", text)


def check_exchange(work: PartInJob, demands: BundleDemands, site: SiteConfig, images: int) -> Iterator[SiteFinding]:
    """Say which values that the job asks for stay here, and whether ``images`` are enough for the others."""
    if withheld := [name for name in work.extras if name not in site.privacy.allowed_extras]:
        listed = ", ".join(sorted({*site.privacy.allowed_extras, *work.extras}))
        them = "it" if len(withheld) == 1 else "them"
        text = f"the job asks for {', '.join(withheld)}, and 'privacy.allowed_extras' in {site.source} does not list "
        text += f"{them}; to send {them} write 'privacy: {{allowed_extras: [{listed}]}}' (docs/privacy.md says what "
        yield SiteFinding("training", "extras", f"{text}{'it tells' if them == 'it' else 'they tell'})")
    if demands.least is not None and images < demands.least:
        text = f"{images} images are fewer than the {demands.least} from which a site sends statistics of its features"
        yield SiteFinding("training", "few_images", f"{text}; others do not learn from this site, or list more images")
