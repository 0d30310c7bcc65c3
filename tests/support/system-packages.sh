#!/usr/bin/env bash
# Install the programs that the tests drive and that no Python package carries: name the missing
# ones, install them where apt-get is there and allowed, otherwise say what to install.
set -euo pipefail
missing=()
command -v chromium >/dev/null || command -v google-chrome >/dev/null || missing+=(chromium)
command -v ffprobe >/dev/null || missing+=(ffmpeg)
command -v baresip >/dev/null || missing+=(baresip-core)
command -v sipp >/dev/null || missing+=(sip-tester)
[ ${#missing[@]} -eq 0 ] && exit 0
if command -v apt-get >/dev/null && [ "$(id -u)" = 0 ]; then
  sudo=()
elif command -v apt-get >/dev/null && sudo -n true 2>/dev/null; then
  sudo=(sudo)
else
  echo "the tests need these programs, please install them: ${missing[*]}" >&2
  exit 1
fi
echo "installing ${missing[*]}"
"${sudo[@]}" apt-get update -qq
DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
