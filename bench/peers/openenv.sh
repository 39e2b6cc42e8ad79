#!/bin/sh
# Claim: OpenEnv both ways. Its own client plays on our servers, its own `openenv validate` passes them in full, and our
# client plays on a server of its making that holds one session; with `train`, SmolLM2 trains there, on three seeds.
# Makes build/peer-openenv, an environment of its own, without the packages that only OpenEnv's web pages need.
set -eu
cd "$(dirname "$0")/../.."
venv=build/peer-openenv
if [ ! -e "$venv/.agym-validate" ]; then
  [ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
  pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
  $pip fastapi fastmcp requests uvicorn websockets typer rich pyyaml huggingface_hub tomli tomli-w httpx jsonschema \
    packaging openai
  $pip --no-deps openenv==0.10.0
  touch "$venv/.agym-validate"
fi
said=$(mktemp)
theirs=$(mktemp)
.venv/bin/python -m agym.envs.serving.serve counter --port 0 > "$said" &
server=$!
"$venv/bin/python" -W ignore bench/peers/openenv_server.py > "$theirs" &
other=$!
trap 'kill $server $other; rm -f "$said" "$theirs"' EXIT
until [ -s "$said" ]; do kill -0 $server; sleep 0.2; done
until [ -s "$theirs" ]; do kill -0 $other; sleep 0.2; done
url=$(sed -n 's/.*"url":"\([^"]*\)".*/\1/p' "$said")
"$venv/bin/python" -W ignore bench/peers/openenv_side.py "$url/openenv"
"$venv/bin/openenv" validate "$url/openenv"
.venv/bin/python bench/peers/openenv_ours.py "$(cat "$theirs")"
if [ "${1:-}" = train ]; then
  .venv/bin/python bench/smollm2.py "$PWD/bench/peers/openenv.yaml" --seeds 1 2 3 --set "environments.guess.url=$(cat "$theirs")"
fi
