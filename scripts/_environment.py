"""Every script imports this first: outside of FedMed's environment it says what to type, in place of a traceback."""

import sys
from importlib.util import find_spec
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
ACTIVATE = CHECKOUT / ".venv" / "bin" / "activate"

if missing := [name for name in ("fedmed", "nvflare", "monai") if find_spec(name) is None]:
    said = f"{sys.argv[0]}: this Python, {sys.executable}, has no {' and no '.join(missing)}. First type\n"
    said += "" if ACTIVATE.is_file() else f"    {CHECKOUT / 'scripts' / 'setup.sh'}\n"
    sys.exit(f"{said}    source {ACTIVATE}")
sys.path.append(str(CHECKOUT))  # of `research`, which no installation of FedMed has
