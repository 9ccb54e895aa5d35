#!/usr/bin/env python3
"""Make a MONAI bundle from a finished run: weights, merged configs, TorchScript, model card.

    scripts/export_bundle.py simulator_workspace models/covid_ct_segmentation
    scripts/export_bundle.py RUN OUT --onnx --verify
    scripts/export_bundle.py RUN OUT --unseen hospital_e --word procedure=lobectomy   # for a site that never trained
    scripts/export_bundle.py RUN OUT --site hospital_a --site-run /opt/fedmed/kit/JOB_ID   # at that site

RUN is a simulator's workspace, a downloaded job result, or the server's run folder. OUT is the bundle's own folder; its
name ends in _segmentation or _classification, because MONAI Label reads the task from it. After a run that pre-trained
without labels the bundle holds the encoder, from which training with labels continues.
"""

import _environment  # noqa: F401 - first, since it says what to do outside of .venv

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedmed.errors import FedMedError
from fedmed.files import private_files
from fedmed.plain_text import print_in_any_terminal

if TYPE_CHECKING:  # elsewhere where it is used: it takes seconds to load, for which --help need not wait
    from fedmed.export.bundle import Exported


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("run", metavar="RUN", type=Path, help="finished run")
    add("out", metavar="OUT", type=Path, help="the bundle's folder, such as models/covid_ct_segmentation")
    add("--model", choices=["selected", "last"], default="selected", help="best validation score (default), or last")
    add("--site", metavar="NAME", help="merge this site's own layers; needed after partial sharing")
    add("--site-run", metavar="FOLDER", type=Path, help="that site's run folder, when it is not in RUN")
    add(
        "--unseen",
        metavar="NAME",
        help="for this site, which never trained: merge the mean of what all sites released (study: 'release_keep')",
    )
    add(
        "--word",
        metavar="NAME=TEXT",
        action="append",
        default=[],
        help="a word of that site, as in its YAML (repeatable); it is written into the bundle, with the site's name",
    )
    add("--onnx", action="store_true", help="also write models/model.onnx, compared with PyTorch")
    add(
        "--verify",
        metavar="IMAGE",
        nargs="?",
        const=True,
        default=False,
        help="run MONAI's checks, and compare inference before and after on IMAGE (default: a generated one)",
    )
    add("--version", metavar="V", help="of the bundle (default: the base version and a hash of the weights)")
    add("--sign", metavar="KIT", type=Path, help="sign the bundle with the key of this startup kit")
    add("--replace", action="store_true", help="replace an exported bundle at OUT")
    return parser.parse_args(argv)


def report(made: "Exported") -> None:
    """Print what was made, and how to use it."""
    from fedmed.reports.words import size

    model = f"the model after round {made.round + 1}" if made.round >= 0 else "the starting model: no round improved it"
    print(f"{made.out}: version {made.version}, {model}")
    for path in sorted((made.out / "models").iterdir()):
        print(f"  models/{path.name}  {size(path.stat().st_size)}")
    print(f"  configs/inference.yaml is complete; overlays left: {', '.join(made.overlays) or 'none'}")
    for check in made.checks:
        print(f"  checked: {check}")
    print(f"model card: {made.out / 'docs' / 'README.md'}")
    print(*made.next_steps, sep="\n")


@private_files()
def main(argv: list[str] | None = None) -> int:
    """Return 0, or 2 when the run cannot be exported."""
    options = parse_arguments(argv)
    from fedmed.export.bundle import export_bundle, words_of

    wanted = {
        key: getattr(options, key) for key in ("model", "site", "site_run", "unseen", "onnx", "version", "replace")
    }
    verify = Path(options.verify) if isinstance(options.verify, str) else options.verify
    try:
        made = export_bundle(
            options.run, options.out, verify=verify, words=words_of(options.word), sign_with=options.sign, **wanted
        )
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    report(made)
    return 0


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
