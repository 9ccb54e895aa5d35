"""A folder that is not a readable startup kit."""

import pytest

from fedmed.checks.startup_kit import read_kit
from fedmed.errors import SiteConfigError


def test_no_kit_is_one_clear_error(tmp_path, make_kit):
    with pytest.raises(SiteConfigError, match="startup/fed_client.json is missing"):
        read_kit(tmp_path)
    kit = make_kit()
    (kit / "startup" / "client.crt").write_text("nothing")
    with pytest.raises(SiteConfigError, match="client.crt is not a readable certificate"):
        read_kit(kit)
    (kit / "startup" / "fed_server.json").touch()
    with pytest.raises(SiteConfigError, match="server or an admin"):
        read_kit(kit)
