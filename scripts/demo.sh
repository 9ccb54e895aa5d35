#!/usr/bin/env bash
# From nothing to a trained federation: set up .venv, make the demo sites, run the job covid_agreement in NVFlare's
# simulator, the same without the hospital that has no labels, and with it adapting and learning nothing; print what
# each hospital gains and the path of the HTML report.
#
#     scripts/demo.sh [arguments of scripts/simulate.py]
#
# The run lies in runs/covid_agreement and replaces that of an earlier demo.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    sed -n '2,8s/^# \{0,1\}//p' scripts/demo.sh
    exit 0
fi
scripts/setup.sh
echo "demo: federated semi-supervised segmentation of lung lesions on generated CT volumes, with and without a hospital that has no labels, and with that hospital adapting alone; about 9 minutes on 2 cores"
exec .venv/bin/python scripts/simulate.py jobs/covid_agreement --workspace runs/covid_agreement --control "$@"
