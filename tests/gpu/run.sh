#!/usr/bin/env bash
# Builds muster's SDK on this machine and plays the checks that need a GPU: docs/gpu.md. --help lists the options.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
command -v "$python" >/dev/null || { echo "run.sh: there is no $python on PATH. PYTHON=/path/to/python3 names another." >&2; exit 1; }
exec "$python" -B -u "$here/source/tests/gpu/play.py" "$@"
