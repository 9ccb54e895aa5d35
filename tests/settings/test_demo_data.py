"""A synthetic hospital on a machine that cannot draw it."""

import sys

import pytest

from fedmed.errors import SiteConfigError
from fedmed.settings.site import load_file


def test_what_to_install_is_said(monkeypatch, tmp_path):
    (tmp_path / "ct_north.yaml").write_text("demo: chest_ct\ndevice: cpu\n")
    monkeypatch.setitem(sys.modules, "fedmed_demo", None)  # as where it is not installed
    with pytest.raises(SiteConfigError, match="(?s)'ct_north': 'demo: chest_ct' .*pip install ./custom/fedmed_demo"):
        load_file(tmp_path / "ct_north.yaml")
