import pytest


@pytest.fixture(scope="module")
def script(load_script):
    return load_script("report")


def test_it_prints_the_table_and_the_absolute_path(script, fake_run, capsys, monkeypatch):
    folder = fake_run(rounds=1)
    monkeypatch.chdir(folder.parent)
    assert script.main([folder.name, "--out", "here"]) == 0
    printed = capsys.readouterr().out
    assert "ct_west" in printed
    assert f"report: {folder.parent / 'here' / 'report.html'}" in printed


def test_a_wrong_folder_is_said_in_plain_words(script, tmp_path, capsys):
    assert script.main([str(tmp_path / "nowhere")]) == 2
    assert "error: no run at" in capsys.readouterr().err
