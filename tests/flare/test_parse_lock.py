"""Arrays that several threads read at a time."""

import subprocess
import sys

# Garbage whose collection runs Python code makes threads change in the middle of the parser. Without the guard this
# meets the error about nine times a second.
READ = """
import gc, io, sys, threading, time
import numpy as np
{guard}
class Cycle:
    def __init__(self):
        self.me = self
    def __del__(self):
        for _ in range(30):
            pass
def array(rows):
    stream = io.BytesIO()
    np.save(stream, np.zeros((rows, 3, 3)))
    return stream.getvalue()
arrays, errors = [array(rows) for rows in range(1, 21)], []
def read(until):
    while time.monotonic() < until and not errors:
        for content in arrays:
            Cycle()
            try:
                np.load(io.BytesIO(content))
            except SystemError as error:
                errors.append(error)
sys.setswitchinterval(1e-5)
gc.set_threshold(50)
threads = [threading.Thread(target=read, args=(time.monotonic() + 2,)) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(errors))
"""


def test_threads_that_read_arrays_do_not_disturb_each_other():
    guard = "import fedmed.flare"
    done = subprocess.run([sys.executable, "-c", READ.format(guard=guard)], capture_output=True, text=True, timeout=600)
    assert done.stdout.strip() == "0", done.stderr
