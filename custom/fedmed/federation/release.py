"""The one way by which private layers leave a site: asked for by the job, allowed by the site, logged at both ends."""

import logging

from fedmed.aggregation.sharing import tensor_bytes
from fedmed.messages.answers import Release
from fedmed.messages.task import Task
from fedmed.recovery.site_state import SiteState
from fedmed.settings.site import SiteConfig

log = logging.getLogger("fedmed.site")


def hand_out(site: SiteConfig, state: SiteState, task: Task) -> Release:
    """Answer a ``release`` task at the site; nothing but the site's own settings can allow it.

    Raises:
        StateError: allowed, but the asked round's state is missing or damaged.
    """
    if not site.allow_release:
        log.warning(
            "%s: the job asks for this site's private layers; nothing is released, because 'allow_release' is not "
            "true in %s",
            site.site,
            site.source,
        )
        return Release(site.site, task.private_round)
    tensors = state.load(task.private_round).get("private", {})
    log.warning(
        "%s: releases its %d private tensors of round %s (%d bytes) to the server, which scores other sites with "
        "them; allowed by %s",
        site.site,
        len(tensors),
        task.private_round,
        tensor_bytes(tensors),
        site.source,
    )
    if task.keep:
        known = (site.site, site.allow_kept_release, site.source)
        log.warning("%s: the job would keep the mean of all sites' for an export: allowed %s, by %s", *known)
    return Release(site.site, task.private_round, True, tensors, task.keep and site.allow_kept_release)
