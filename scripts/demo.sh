#!/usr/bin/env bash
# From nothing to a trained federation: set up .venv, then fedmed demo, which makes synthetic hospitals, trains them
# together and prints what each gains and the path of the HTML report.
#
#     scripts/demo.sh [options of fedmed demo]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
    sed -n '2,5s/^# \{0,1\}//p' scripts/demo.sh
    exit 0
fi
scripts/setup.sh
echo "demo: federated semi-supervised segmentation of lung lesions on generated CT volumes, each hospital with labels also alone; with and without a hospital that has none, and with that one adapting alone; about 9 minutes on 2 slow cores"
exec .venv/bin/python -m fedmed demo "$@"
