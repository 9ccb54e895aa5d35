"""One server process: check the bundles' weights, then run MONAI Label. Started by serve.py.

python -m fedmed_label.server BUNDLE... -- (arguments of `monailabel`)
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from fedmed.errors import FedMedError
from fedmed_label.bundles import read_bundles
from fedmed_label.process import KILL_GRACE
from fedmed_label.weights import open_network


def main(arguments: list[str]) -> int:
    """Return 2 when a bundle cannot be served; the last line on stderr says why."""
    cut = arguments.index("--")
    try:
        for bundle in read_bundles([Path(folder) for folder in arguments[:cut]]):
            open_network(bundle)
    except FedMedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    threading.Thread(target=end_with_launcher, daemon=True).start()
    sys.argv = ["monailabel", *arguments[cut + 1 :]]
    from monailabel.main import Main  # only now: it takes seconds

    Main().run()
    return 0


def end_with_launcher() -> None:
    """End this process and all that it started when the launcher is gone: a killed launcher cannot do it."""
    while os.read(0, 1):  # nothing is ever sent; the read returns when the launcher's end closes
        pass
    os.killpg(0, signal.SIGTERM)
    time.sleep(KILL_GRACE)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
