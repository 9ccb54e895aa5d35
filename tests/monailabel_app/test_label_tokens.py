"""The file of a server's token."""

import pytest
from fedmed_label.tokens import make_token, read_token

from fedmed.errors import FedMedError


def test_a_token_is_made_once_and_only_its_user_can_read_it(tmp_path):
    path = make_token(tmp_path / "new" / "token")
    first = read_token(path)
    assert path.stat().st_mode & 0o777 == 0o600 and len(first) >= 32
    assert read_token(make_token(path)) == first
    assert read_token(make_token(tmp_path / "other")) != first


@pytest.mark.parametrize(
    ("content", "mode", "words"),
    [("a" * 30, 0o604, "others than you"), ("short", 0o600, "fewer than"), ("ä" * 30, 0o600, "not readable")],
)
def test_what_is_no_secret_is_refused(tmp_path, content, mode, words):
    (path := tmp_path / "token").write_text(content)
    path.chmod(mode)
    with pytest.raises(FedMedError, match=words):
        make_token(path)
