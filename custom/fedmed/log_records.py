"""Log records whose texts can neither forge a line of a log nor drive the terminal that shows it.

Handlers and formatters are NVFlare's, or a person's, and change while a kit runs. So the records themselves are made
harmless, those of NVFlare's own loggers too: a client's name, say, comes from the network.
"""

import logging
import re
import traceback
from typing import Any

from fedmed.plain_text import in_lines

_NEXT_LINE = re.compile(r"\n(?!    )")  # what is indented already stays, since a text may pass here twice


def in_log(text: object) -> str:
    """Text without control characters; of several lines, all but the first are indented, as no record begins."""
    return _NEXT_LINE.sub("\n    ", in_lines(text))


class PlainRecord(logging.LogRecord):
    """A record whose message and traceback are :func:`in_log`."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        if self.exc_info and self.exc_info[0]:
            said = "".join(traceback.format_exception(*self.exc_info)).rstrip("\n")
            self.exc_text = "    " + in_log(said)  # formatters keep what is there
        try:  # at once: NVFlare's formatters fail where a text with arguments looks like one of theirs, "[a=b]: "
            self.msg, self.args = self.getMessage(), ()
        except Exception:  # noqa: BLE001 # an argument that cannot be shown; the handlers say so
            return

    def getMessage(self) -> str:  # noqa: N802 # logging's name
        """The message with its arguments."""
        return in_log(super().getMessage())


def write_plain_records() -> None:
    """Make every record of this process a :class:`PlainRecord`, unless another program has put its own in place."""
    if logging.getLogRecordFactory() is logging.LogRecord:
        logging.setLogRecordFactory(PlainRecord)
