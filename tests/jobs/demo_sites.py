"""Sites of the smallest demonstrations, and what passes between sites and the server."""

import yaml

from fedmed.federation.client import Client
from fedmed.privacy.disclosures import SiteDisclosures
from fedmed.settings.site import load_file


def demo_site(folder, site, demo, **values):
    """Settings of a site that a file in the folder has."""
    path = folder / f"{site}.yaml"
    path.write_text(yaml.safe_dump({**values, "site": site, "demo": demo, "device": "cpu", "threads": 1}))
    return load_file(path)


def note_messages(patch, messages, *names):
    """Add to the list, from now on, each site, task of one of these names, and answer."""
    for name in names:
        original = getattr(Client, name)

        def noted(self, task, original=original):
            answer = original(self, task)
            messages.append((self.site.site, task, answer))
            return answer

        patch.setattr(Client, name, noted)


def foreseen_scores(job, site):
    """Names of the numbers of the closing test that the site can foresee to send."""
    closing = SiteDisclosures(job, site).closing()
    return {name for sending in closing if sending.task == "evaluate" for name in sending.scalars}
