#!/usr/bin/env bash
# Installs what tests/sglang needs into the folder given: SGLang and two models (a few minutes, some 3 GB).
# Does nothing where the same is there already.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
place=$1
wanted=$(cat "$here/requirements.txt" "$here/no-deps.txt" "$here/tiny_models.py" | sha256sum)
if [ "$(cat "$place/installed" 2>/dev/null || true)" = "$wanted" ]; then
    exit 0
fi
mkdir -p "$place"
rm -f "$place/installed"
"${PYTHON:-python3}" -m venv "$place/venv"
pip=("$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" --requirement "$here/requirements.txt"
"${pip[@]}" --no-deps --requirement "$here/no-deps.txt"
rm -rf "$place/models"
mkdir "$place/models"
"$place/venv/bin/python" -W ignore "$here/tiny_models.py" "$place/models"
printf '%s\n' "$wanted" >"$place/installed"
