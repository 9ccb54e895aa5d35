"""fedmed site ledger: what has left, what would leave, and mistakes in plain words."""

import json

import pytest

from tests.commands import fedmed


@pytest.fixture(scope="module")
def main():
    return fedmed("site", "ledger")


def test_the_ledger_of_a_run(main, finished_run, tmp_path, capsys):
    assert main([str(finished_run / "ct_north"), "--out", str(tmp_path / "page.html")]) == 0
    screen, page = capsys.readouterr().out, (tmp_path / "page.html").read_text()
    assert "ct_north sent 2 updates" in screen.replace("\n", " ") and "train_loss" in screen
    for text in (page, screen):
        assert "evaluate" in text and "dice_mean" in text and "written down" in text.replace("\n", " ")
    assert "conv_final.2.conv.weight" in page and "http" not in page and "<script" not in page


def test_refusals_and_seeded_noise_are_said_and_nothing_is_markup(main, tmp_path, capsys):
    line = {"time": "2026-01-02T03:04:05+00:00", "site": "a", "answer": "update", "task": "train", "round": 0}
    noise = {"noise_std": 0.1, "noise_seed": True, "epsilon": 12345.6, "delta": 1e-5, "norm": 3.0, "norm_clipped": 1.0}
    lines = [{**line, "tensors": {"w": "float32 3"}, "bytes": 12, "sha256": "ab" * 32, "metrics": {}, **noise}]
    lines.append({**line, "answer": "refused", "reason": "no file [bold]<b>x</b>"})
    (tmp_path / "ledger.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert main([str(tmp_path), "--out", str(tmp_path / "page.html")]) == 0
    screen, page = " ".join(capsys.readouterr().out.split()), (tmp_path / "page.html").read_text()
    assert "protected nothing" in page and "promises practically nothing" in page
    assert "ε = 12,300" in page and "0.00001" in page and "norm 3 cut to 1" in page
    assert "[bold]<b>x</b>" in screen and "<b>x</b>" not in page and "&lt;b&gt;" in page


def test_the_dry_run_of_a_demo_site(main, tiny_job, tiny_site_configs, tmp_path, capsys):
    job = tiny_job(sites={"ct_north": "supervised"}, rounds=5)
    arguments = ["--dry-run", str(tiny_site_configs / "ct_north.yaml"), "--job", str(job)]
    assert main([*arguments, "--out", str(tmp_path / "page.html")]) == 0
    screen, page = " ".join(capsys.readouterr().out.split()), (tmp_path / "page.html").read_text()
    for text in (screen, page):
        assert "would send 5 updates" in text and "1–5" in text and "never released" in text
    assert "conv_final.2.conv.weight" in page and "conv_final" not in screen


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "no ledger at nowhere"),
        (["{empty}"], "nothing has been sent yet"),
        (["--dry-run", "nowhere.yaml", "--job", "x"], "nowhere.yaml: not a readable YAML file"),
    ],
)
def test_mistakes_are_said_in_one_line(main, arguments, message, tmp_path, capsys):
    (tmp_path / "ledger.jsonl").touch()
    assert main([argument.format(empty=tmp_path) for argument in arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["a", "--dry-run", "b"], ["--dry-run", "b"], ["a", "--job", "b"]])
def test_arguments_that_do_not_go_together(main, arguments):
    assert main(arguments) == 2
