"""``python -m fedmed`` is the command ``fedmed``."""

import sys

from fedmed.commands.command_line import main

sys.exit(main())
