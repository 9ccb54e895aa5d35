#!/usr/bin/env bash
# Make the startup kits of a federation: one folder each for the server, the sites and the people.
#
#     scripts/provision.sh PROJECT.yml [--out DIR]
#
# PROJECT.yml  who takes part; start from site_configs/project.yml
# --out DIR    where to; default ~/fedmed/<name of the federation>
#
# Run it again after adding participants to PROJECT.yml: they get kits of the same certificate authority, and nothing
# else is touched. scripts/add_site.sh adds a site without editing, and renews certificates.
set -euo pipefail
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in
-h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | grep -v '^set '
    exit 0
    ;;
esac
[[ -x $checkout/.venv/bin/python ]] || "$checkout/scripts/setup.sh" >&2
exec "$checkout/.venv/bin/python" -m fedmed.provisioning.command_line provision "$@"
