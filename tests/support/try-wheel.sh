#!/usr/bin/env bash
# Install the wheel beside the dependencies of .venv, away from the checkout, and speak with it: an
# editable install hides a sub-package or a page file that is missing from the wheel.
set -euo pipefail
wheel=$(realpath "$1")
python=$(realpath -s .venv/bin/python)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"$python" -m pip install --disable-pip-version-check -q --no-deps --target site "$wheel"
PYTHONPATH=site "$python" -P - <<'PY'
import importlib.util
from importlib.resources import files

import cosyvoice_stream

assert "/site/" in cosyvoice_stream.__file__, cosyvoice_stream.__file__
for module in ("lite.engine", "server.app", "server.cli", "streaming.clauses", "telephony"):
    assert importlib.util.find_spec(f"cosyvoice_stream.{module}"), module
page = files("cosyvoice_stream.web_demo")
for name in ("index.html", "style.css", "client.js", "playback-worklet.js"):
    assert page.joinpath(name).is_file(), name
PY
PYTHONPATH=site "$python" -P -m cosyvoice_stream.server.cli say -q "The wheel speaks." -o speech.wav
test "$(stat -c %s speech.wav)" -gt 20000
echo "wheel: $(basename "$wheel") imports, carries its page and speaks"
