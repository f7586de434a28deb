#!/usr/bin/env bash
# Make the virtual environment .venv with Python 3.11 or later, when there is none yet.
# Usage: tools/make_venv.sh [PYTHON]
set -euo pipefail

is_new_enough() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

# The system's Python first: it is built for speed, and those of version managers often are not (15 % of our hot path).
python=""
for candidate in "${1:-}" /usr/bin/python3.11 python3.11 python3 python3.12 python3.13; do
    if [ -n "$candidate" ] && is_new_enough "$candidate"; then python=$candidate; break; fi
done
if [ -z "$python" ]; then
    echo "Quintet needs Python 3.11 or later; none was found. Name one with: make PYTHON=/path/to/python3.11 ..." >&2
    exit 1
fi

[ -x .venv/bin/pip ] && is_new_enough .venv/bin/python && exit 0
rm -rf .venv
if ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    # Debian ships the venv module apart from Python.
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
    "$(dirname "$0")/install_system_packages.sh" "python$version-venv"
fi
"$python" -m venv .venv
