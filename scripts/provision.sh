#!/usr/bin/env bash
# fedmed provision, which makes a federation's startup kits; .venv is set up where it is missing.
set -euo pipefail
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
[[ -x $checkout/.venv/bin/python ]] || "$checkout/scripts/setup.sh" >&2
exec "$checkout/.venv/bin/python" -m fedmed provision "$@"
