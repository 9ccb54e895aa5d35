"""A synthetic hospital on a machine that cannot draw it."""

import sys

import pytest

from fedmed.errors import SiteConfigError
from fedmed.settings.site import load_site


def test_what_to_install_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "fedmed_demo", None)  # as where it is not installed
    with pytest.raises(SiteConfigError, match="(?s)'ct_north': 'demo: chest_ct' .*pip install ./custom/fedmed_demo"):
        load_site("ct_north")
