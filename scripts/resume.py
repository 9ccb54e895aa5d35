#!/usr/bin/env python3
"""Write the job that continues an interrupted run of a real federation.

    scripts/resume.py transfer/<job id> jobs/my_study_2
    scripts/resume.py /opt/kits/server/<job id> jobs/my_study_2 --job jobs/my_study

RUN is the downloaded result of the job that was aborted or failed, or, when the server itself went down, the job's
folder in the server's workspace. If nobody can reach that folder, give the job's id alone: a restarted server finds
it. Submit the new job as any other. Each site finds its own private state in the folder of the old job, which must
stay where it is. A run in the simulator is continued by scripts/simulate.py JOB --resume.
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
    from fedmed.recovery.resumed_job import Resumed


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("run", metavar="RUN", help="downloaded result, the server's run folder, or the id of the job")
    add("out", metavar="OUT", type=Path, help="job folder to write")
    add("--job", type=Path, help="the old job's folder (default: the one in the downloaded result)")
    add("--rounds", type=int, help="rounds of the whole run, if it is to become longer")
    add(
        "--allow-fresh",
        action="append",
        default=[],
        metavar="SITE",
        help="this site lost its private state and starts with a new one (repeatable); the run then differs from an "
        "uninterrupted one",
    )
    add(
        "--back",
        action="store_true",
        help="go on from the round before the last good one, since a site's log says that its own state is damaged",
    )
    add("--replace", action="store_true", help="replace an existing job folder")
    return parser.parse_args(argv)


def tell(resumed: "Resumed") -> None:
    """Print what the job will do, and what it needs."""
    print(f"{resumed.folder} continues job {resumed.id}")
    if resumed.done is None:
        print("from the round after the last good one; the server finds it in its own folder of that job")
    elif resumed.done == resumed.rounds:
        print(f"all {resumed.rounds} rounds are done: the models are scored and tested, nothing is trained")
    else:
        print(f"from round {resumed.done + 1} of {resumed.rounds}; {resumed.done} are done")
    needed = {site: round + 1 for site, round in sorted(resumed.private.items())}
    for site, round in needed.items():
        print(f"    {site} needs its own state of round {round}, in {resumed.id}/fedmed/state of its kit")
    print("Submit it as any other job. The sites and the server must use the same version of the bundle as before.")


@private_files()
def main(argv: list[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    from fedmed.recovery.resumed_job import find_interrupted, write_resumed

    try:
        run = find_interrupted(arguments.run, arguments.job)
        tell(
            write_resumed(
                run,
                arguments.out,
                rounds=arguments.rounds,
                fresh=arguments.allow_fresh,
                replace=arguments.replace,
                back=arguments.back,
            )
        )
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"error: {error}; free space, or choose another folder", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    print_in_any_terminal()
    sys.exit(main())
