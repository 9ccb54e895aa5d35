"""The options that preparations read."""

import pytest


@pytest.mark.parametrize("written", [["--mask-suffix", "-msk"], ["--mask-suffix=-msk"]])
def test_the_ending_of_a_masks_name_may_begin_with_a_hyphen(load_script, written, tmp_path):
    options = load_script("prepare_ct").parse([str(tmp_path), "--site", "a", *written, "--image-suffix", "-ct"])
    assert (options.mask_suffix, options.image_suffix) == ("-msk", "-ct")


def test_an_option_is_not_taken_for_an_ending(load_script, tmp_path, capsys):
    with pytest.raises(SystemExit):
        load_script("prepare_ct").parse([str(tmp_path), "--site", "a", "--mask-suffix", "--copy"])
    assert "--mask-suffix: expected one argument" in capsys.readouterr().err
