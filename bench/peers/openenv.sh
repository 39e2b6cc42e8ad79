#!/bin/sh
# Claim: OpenEnv's own client plays on our servers. Makes build/peer-openenv, an environment of its own, and plays there.
# Without the packages that only OpenEnv's command line and web pages need.
set -eu
cd "$(dirname "$0")/../.."
venv=build/peer-openenv
if [ ! -e "$venv/.agym-setup" ]; then
  [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
  pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
  $pip fastapi fastmcp requests uvicorn websockets
  $pip --no-deps openenv==0.10.0
  touch "$venv/.agym-setup"
fi
said=$(mktemp)
.venv/bin/python -m agym.envs.serving.serve counter --port 0 > "$said" &
server=$!
trap 'kill $server; rm -f "$said"' EXIT
until [ -s "$said" ]; do kill -0 $server; sleep 0.2; done
url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$said")
"$venv/bin/python" -W ignore bench/peers/openenv_side.py "$url/openenv"
