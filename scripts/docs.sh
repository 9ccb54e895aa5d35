#!/usr/bin/env bash
# Build the pages of docs/ into docs/_build/html, and fail on each warning: a link that leads nowhere is one.
#
#     scripts/docs.sh [--external]
#
# Sets up .venv, and beside it .venv-docs with docs/requirements.txt, which sees the packages of .venv too. Pages are read
# anew each time, since a heading that has gone is missed only where another page is read. --external asks the network
# for links to other servers instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

builder=html
case ${1:-} in
-h | --help)
    sed -n '2,8s/^# \{0,1\}//p' scripts/docs.sh
    exit 0
    ;;
--external) builder=linkcheck ;;
"") ;;
*)
    echo "docs: '$1' is not an option of scripts/docs.sh" >&2
    exit 2
    ;;
esac

scripts/setup.sh --dev
stamp=.venv-docs/fedmed-stamp
made_of="$PWD $(.venv/bin/python -V) $(cksum <docs/requirements.txt)"
if [[ ! -f $stamp || $(<"$stamp") != "$made_of" ]]; then
    echo "docs: making .venv-docs"
    .venv/bin/python -m venv --clear .venv-docs
    .venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -r docs/requirements.txt
    # What the reference is made of imports packages of .venv; those of .venv-docs come first.
    packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    own=$(.venv-docs/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    echo "import site; site.addsitedir('$packages')" >"$own/of_venv.pth"
    echo "$made_of" >"$stamp"
fi
.venv-docs/bin/python -m sphinx --quiet --fresh-env --fail-on-warning --keep-going --builder "$builder" \
    --conf-dir docs . "docs/_build/$builder"
echo "docs: see docs/_build/$builder"
