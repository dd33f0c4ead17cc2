#!/usr/bin/env bash
# Installs what tests/sglang needs into the folder given: SGLang and its models, once (a few minutes, some 3 GB).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
place=$1
mkdir -p "$place"
"${PYTHON:-python3}" -m venv "$place/venv"
pip=("$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" --requirement "$here/requirements.txt"
"${pip[@]}" --no-deps --requirement "$here/no-deps.txt"
rm -rf "$place/models"
mkdir "$place/models"
"$place/venv/bin/python" "$here/tiny_models.py" "$place/models"
touch "$place/installed"
