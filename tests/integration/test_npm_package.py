"""The folder of the page's client as an npm package: what it holds, and whether its types fit."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cosyvoice_stream.version import __version__
from support.node_client import FOLDER, installed

pytestmark = pytest.mark.integration

WEB_DEMO = Path(__file__).parents[2] / "web_demo"
RUN_S = 60
USE = """
import { ConnectionLost, Session, VoiceRejected } from "cosyvoice-stream-client";
import { openCall } from "cosyvoice-stream-client/call";

async function* fragments() { yield "Hello "; yield "there."; }

export async function use(element: HTMLAudioElement): Promise<number> {
  const session = await Session.open("ws://127.0.0.1:8000/v1/stream");
  const said = session.speak(fragments(), { voice: "heart", marks: ["word", "viseme"] });
  said.on("audio", (samples, position, last) => last || samples.length + position);
  said.on("end", (_, error) => error instanceof ConnectionLost && error.code);
  const done = await said.ended;
  const made = await session.clone(new Int16Array(16000), { consent: "my own voice" });
  const call = await openCall("/v1/webrtc/offer", { element });
  let heard = 0;
  call.speak(["a", "b"]).on("position", (event) => { heard = call.call.heardS(event); });
  call.on("close", () => session.close());
  if (made instanceof VoiceRejected) throw made;
  return heard + done.type.length;
}
"""
WRONG = {
    "unknown event": 'import { Session } from "cosyvoice-stream-client";\n'
    'export const f = (s: Session) => s.on("nothing", () => 0);',
    "wrong option": 'import { Session } from "cosyvoice-stream-client";\n'
    'export const f = (s: Session) => s.speak("a", { speed: "fast" });',
}


def compiled(folder: Path, source: str) -> subprocess.CompletedProcess[str]:
    node = installed()
    packages = folder / "node_modules"
    packages.mkdir()
    (packages / "cosyvoice-stream-client").symlink_to(WEB_DEMO, target_is_directory=True)
    (folder / "use.ts").write_text(source)
    (folder / "package.json").write_text('{"type": "module"}')
    command = [node, str(FOLDER / "node_modules" / "typescript" / "bin" / "tsc"), "--noEmit"]
    options = ["--strict", "--module", "nodenext", "--target", "es2022", "--lib", "es2022,dom"]
    return subprocess.run(
        [*command, *options, "use.ts"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )


def test_types_fit_the_use(tmp_path):
    done = compiled(tmp_path, USE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", WRONG)
def test_types_refuse_what_is_wrong(tmp_path, name):
    done = compiled(tmp_path, WRONG[name])
    assert done.returncode != 0
    assert "use.ts(2" in done.stdout


@pytest.mark.parametrize("module", ["client", "call"])
def test_what_a_module_exports_is_declared(module):
    exported = re.compile(r"^export (?:declare )?(?:async )?(?:class|function|const) (\w+)", re.M)
    script = (WEB_DEMO / f"{module}.js").read_text()
    assert set(exported.findall(script)) == set(
        exported.findall((WEB_DEMO / f"{module}.d.ts").read_text())
    )


def test_the_package_holds_the_client_and_nothing_else():
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed")
    done = subprocess.run(
        [npm, "pack", "--dry-run", "--json"],
        cwd=WEB_DEMO,
        capture_output=True,
        text=True,
        timeout=RUN_S,
    )
    assert done.returncode == 0, done.stderr
    (package,) = json.loads(done.stdout)
    names = {"client.js", "client.d.ts", "call.js", "call.d.ts", "README.md", "package.json"}
    assert {file["path"] for file in package["files"]} == names
    assert package["version"] == __version__
