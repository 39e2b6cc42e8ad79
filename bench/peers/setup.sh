#!/bin/sh
# Makes build/peer-trl, the virtual environment in which bench/peers/trl.py runs TRL; nothing to do the second time.
set -eu
cd "$(dirname "$0")/../.."
venv=build/peer-trl
stamp=$venv/.agym-setup
[ -e "$stamp" ] && [ ! bench/peers/trl.lock -nt "$stamp" ] && [ ! pyproject.toml -nt "$stamp" ] && exit 0
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps"
$pip -r bench/peers/trl.lock
# the game and its tokenizer are agym's own code
$pip --no-build-isolation --editable .
touch "$stamp"
