#!/usr/bin/env bash
# Make the startup kit of a site that joins a federation later, or renew a participant's certificate.
#
#     scripts/add_site.sh NAME ORG [--role supervised|unsupervised|evaluate] [--custom-code] [--out DIR]
#     scripts/add_site.sh NAME --renew [--out DIR]
#
# NAME           of the site, as jobs will use it; with --renew of any participant
# ORG            its organisation: letters, digits and _
# --role         chooses the explanations in the kit's local/fedmed_site.yaml; default supervised
# --custom-code  the site lets jobs bring a folder custom/
# --out DIR      the federation's folder; default: the only one below ~/fedmed
#
# The running federation need not be stopped: the server knows the new site by its certificate.
set -euo pipefail
checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
case ${1:-} in
"" | -h | --help)
    sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}" | grep -v '^set '
    [[ -n ${1:-} ]] && exit 0 || exit 2
    ;;
esac
[[ -x $checkout/.venv/bin/python ]] || "$checkout/scripts/setup.sh" >&2
exec "$checkout/.venv/bin/python" -m fedmed.provisioning.command_line add-site "$@"
