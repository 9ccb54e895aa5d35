#!/usr/bin/env bash
# From nothing to a trained federation: set up .venv, make the demo sites, run the job covid_fssl in NVFlare's
# simulator, print each site's Dice and the path of the HTML report.
#
#     scripts/demo.sh [arguments of scripts/simulate.py]
#
# The run lies in runs/covid_fssl and replaces that of an earlier demo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    sed -n '2,7s/^# \{0,1\}//p' scripts/demo.sh
    exit 0
fi
scripts/setup.sh
echo "demo: federated semi-supervised segmentation of lung lesions on generated CT volumes, a few minutes"
exec .venv/bin/python scripts/simulate.py jobs/covid_fssl --workspace runs/covid_fssl "$@"
