#!/usr/bin/env bash
# Make the image's environment; the Containerfile's first stage runs it, nobody else has to.
#
#     containers/install.sh packages VENV cpu|cuda    a virtual environment of what locks/ names, by hash
#     containers/install.sh fedmed VENV               FedMed's wheel into it; pip and tools for tests are taken away
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source locks/install.sh
python=$2/bin/python
pip=(--no-cache-dir --disable-pip-version-check --progress-bar off) # compiled here: the image is read-only later

die() {
    printf 'install: %s\n' "$@" >&2
    exit 1
}

packages() { # which make of PyTorch
    local lock make=cpu
    python3 -m venv "${python%/bin/python}"
    lock=$(lock_for "$python" "")
    [[ -n $lock ]] || die "locks/ has no file for this platform and Python: choose another BASE"
    install_lock "$python" "$lock" "${pip[@]}"
    ! has_cuda_torch "$python" || make=cuda
    [[ $make == "$1" ]] ||
        die "the index answered with PyTorch for $make, not for $1." \
            "Give the other one as PIP_EXTRA_INDEX_URL (see containers/README.md), or --build-arg TORCH=$make."
}

fedmed() {
    local folder
    folder=$(mktemp -d)
    "$python" -m pip wheel "${pip[@]}" --no-deps --no-build-isolation -w "$folder" .
    "$python" -m pip install "${pip[@]}" --no-deps "$folder"/*.whl
    "$python" -m pip uninstall --yes pytest # locked with the rest, of no use here
    "$python" -m pip uninstall --yes pip
}

"$1" "${@:3}"
