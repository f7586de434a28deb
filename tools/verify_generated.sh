#!/usr/bin/env bash
# Generated files are committed; this proves that they are what their sources give today.
# Usage: tools/verify_generated.sh PYTHON
set -euo pipefail
python=$1
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

"$python" tools/generate_stubs.py "$fresh/stubs"
"$python" tools/generate_docs.py "$fresh/docs"
"$python" -m monitoring.dashboards "$fresh/dashboards"

stale=0
diff -ru --exclude=__pycache__ proto/gen "$fresh/stubs" || { echo "proto/gen is stale: run 'make proto'" >&2; stale=1; }
for page in settings.md metrics.md; do
    diff -u "docs/$page" "$fresh/docs/$page" || { echo "docs/$page is stale: run 'make docs'" >&2; stale=1; }
done
diff -ru monitoring/grafana/dashboards "$fresh/dashboards" || {
    echo "monitoring/grafana/dashboards is stale: run 'make dashboards'" >&2
    stale=1
}
exit "$stale"
