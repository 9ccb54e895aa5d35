#!/usr/bin/env bash
# Set up .venv, then check style and types of the checkout. Nothing is changed.
#
#     scripts/lint.sh
#
# Four checks, all of which run: ruff check, ruff format --check, mypy (pyproject.toml has their settings), and whether
# a locked package has a known fault. To correct what ruff can correct:
# .venv/bin/ruff check --fix . && .venv/bin/ruff format .
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $# -gt 0 ]]; then
    sed -n '2,8s/^# \{0,1\}//p' scripts/lint.sh
    [[ $1 == -h || $1 == --help ]] && exit 0 || exit 2
fi
scripts/setup.sh --dev
failed=()
for check in "-m ruff check ." "-m ruff format --check ." "-m mypy" "locks/dependencies.py check"; do
    echo "lint: ${check#-m }"
    read -ra words <<<"$check"
    .venv/bin/python "${words[@]}" || failed+=("${check#-m }")
done
if [[ ${#failed[@]} -gt 0 ]]; then
    printf 'lint: %s failed\n' "${failed[@]}" >&2
    exit 1
fi
