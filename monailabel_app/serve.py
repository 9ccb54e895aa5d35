#!/usr/bin/env python3
"""Serve bundles in MONAI Label. Started by scripts/label.sh with the Python of MONAI Label's environment."""

import argparse
import contextlib
import os
import signal
import sys
import tempfile
from pathlib import Path

from fedmed_label.bundles import ServedBundle, open_bundles
from fedmed_label.checks import check_address, check_device, check_dicomweb, is_loopback, local_url, own_names
from fedmed_label.door import Rules
from fedmed_label.instance import environment, instance
from fedmed_label.process import Server
from fedmed_label.tokens import make_token

from fedmed.errors import FedMedError


class Ended(Exception):
    """The user ended the server."""


def say(*lines: str) -> None:
    """Tell the user, at once."""
    print(*lines, sep="\n", flush=True)


def read_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("scripts/label.sh", description="See scripts/label.sh --help")
    parser.add_argument("studies", metavar="STUDIES", help="folder of images, a site's YAML, or a DICOMweb URL")
    parser.add_argument("bundles", metavar="BUNDLE", nargs="+", type=Path, help="folder of a bundle with weights")
    parser.add_argument("--host", default="127.0.0.1", help="default 127.0.0.1: this machine only")
    parser.add_argument("--port", type=int, default=8000, help="default 8000")
    parser.add_argument("--name", metavar="NAME", action="append", default=[], help="another name of this machine")
    parser.add_argument("--token", metavar="FILE", type=Path, help="clients must bring the secret in this file")
    parser.add_argument("--max-upload", metavar="MB", type=int, default=1024, help="of an image; default 1024")
    parser.add_argument("--allow-delete", action="store_true", help="clients may delete labels and uploaded images")
    parser.add_argument("--work", metavar="DIR", type=Path, help="server's files and labels; default in $FEDMED_HOME")
    parser.add_argument("--trust", metavar="DIGEST", action="append", default=[], help="let this bundle run its code")
    parser.add_argument("--all", action="store_true", help="of a site, the images of all lists, not only unlabeled")
    parser.add_argument("--device", help="cpu, cuda or cuda:N; default: a GPU if there is one")
    parser.add_argument("--stock", action="store_true", help="MONAI Label's own app: 3D segmentation")
    parser.add_argument("--verbose", action="store_true", help="show MONAI Label's log here")
    return parser.parse_args(arguments)


def is_url(studies: str) -> bool:
    return studies.startswith(("http://", "https://"))


def prepare_studies(
    options: argparse.Namespace, pictures: bool = False
) -> tuple[str, list[str], contextlib.AbstractContextManager[None]]:
    """Return what MONAI Label serves, lines about it for the user, and a lock to hold while it is served.

    Args:
        options: of the command.
        pictures: whether a bundle takes pictures: then each DICOM file is an image, not a slice of one.

    Raises:
        FedMedError: the studies cannot be served.
    """
    if is_url(options.studies):
        if options.work:
            raise FedMedError("--work has no meaning with a DICOMweb server, which keeps the labels itself")
        check_dicomweb(options.studies)
        return options.studies, [f"Corrected labels are kept by {options.studies}"], contextlib.nullcontext()
    from fedmed.labelling.studies import (
        exclusive,
        prepare_work,  # only now: it takes a second
    )

    work = prepare_work(Path(options.studies), options.work, everything=options.all, pictures=pictures)
    lines = [f"{len(work.images)} image(s); corrected labels are kept in {work.folder / 'labels' / 'final'}"]
    lines += [f"skipped, because it may not be read: {path}" for path in work.skipped]
    return str(work.folder), lines, exclusive(work.folder)


def check_stock(bundles: list[ServedBundle]) -> None:
    """Refuse what MONAI Label's own app answers with an error or a broken file.

    Raises:
        FedMedError: a bundle that is not 3D segmentation.
    """
    for bundle in bundles:
        if bundle.dimension != 3 or bundle.proposal.scores:
            raise FedMedError(
                f"bundle '{bundle.name}': MONAI Label's own app cannot serve {bundle.dimension}D {bundle.task}; leave "
                "out --stock"
            )


def instructions(options: argparse.Namespace, bundles: list[ServedBundle], about_studies: list[str]) -> list[str]:
    """Lines that a user needs once the server runs."""
    url = local_url(options.host, options.port)
    models = ", ".join(f"{bundle.name} ({bundle.dimension}D {bundle.task})" for bundle in bundles)
    ohif = f"{url}/ohif/" if is_url(options.studies) else "needs a DICOMweb server: give its URL as STUDIES"
    return [
        f"MONAI Label is ready at {url}",
        f"Models: {models}",
        *about_studies,
        f"3D Slicer: module MONAI Label (Modules > Active Learning), MONAI Label server: {url}, then Refresh",
        f"OHIF: {ohif}",
        *([f"Clients must log in: any name, and as password what is in {options.token}"] if options.token else []),
        "End it with Ctrl-C.",
    ]


def warnings(options: argparse.Namespace) -> list[str]:
    """Warnings that a user needs before others than programs of this machine can reach the server."""
    if is_loopback(options.host):
        return []
    where = f"{options.host}:{options.port}"
    if options.token:
        return [f"WARNING: {where} is open to the network without encryption: who listens there sees images and token."]
    return [
        f"WARNING: everyone who reaches {where} over the network can read these images and change labels: MONAI Label "
        "asks for no password. Use a tunnel (ssh -L), a proxy with a login, or --token FILE."
    ]


def rules_of(options: argparse.Namespace) -> Rules:
    """Rules of what clients of the server may do.

    Raises:
        FedMedError: a limit that is no size.
    """
    if options.max_upload < 1:
        raise FedMedError(f"--max-upload {options.max_upload}: give a number of megabytes, such as 1024")
    doors = {"delete": options.allow_delete, "dicomweb": is_url(options.studies)}
    return Rules(
        hosts=own_names(options.host, options.name),
        started=frozenset(what for what, wanted in doors.items() if wanted),
        upload=options.max_upload << 20,
    )


def serve(options: argparse.Namespace) -> None:
    """Start the server, and wait until the user ends it.

    Raises:
        FedMedError: it cannot be started, or ended by itself.
        Ended: the user ended it.
    """
    visible = check_device(options.device)
    with tempfile.TemporaryDirectory(prefix="fedmed-bundles-") as place:
        serve_bundles(options, visible, open_bundles(options.bundles, Path(place), options.trust))


def serve_bundles(options: argparse.Namespace, visible: str | None, bundles: list[ServedBundle]) -> None:
    """The same for bundles that may be run; ``visible`` is what :func:`check_device` says of GPUs."""
    if options.stock:
        check_stock(bundles)
    check_address(options.host, options.port)
    rules = rules_of(options)
    studies, about_studies, lock = prepare_studies(options, any(bundle.dimension == 2 for bundle in bundles))
    token = make_token(options.token) if options.token else None
    for warning in warnings(options):
        say(warning)
    with lock, instance(bundles, options.stock) as folder:
        variables = environment(folder, rules, visible, token)
        say(
            "starting MONAI Label; this takes some seconds"
            + ("" if options.verbose else f"; its log: {folder / 'server.log'}")
        )
        server = Server(folder, bundles, studies, (options.host, options.port), variables, options.verbose)
        try:
            server.wait_until_ready()
            say(*instructions(options, bundles, about_studies))
            server.process.wait()
            raise FedMedError(server.reason())
        finally:
            server.stop()


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when the user ended the server, 2 when something is wrong."""
    options = read_arguments(arguments)

    def end(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # a second Ctrl-C would leave the children behind
        raise Ended

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, end)
    try:
        serve(options)
    except Ended:
        say("ended")
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    os.umask(0o077)  # what the server writes is patient data
    sys.exit(main())
