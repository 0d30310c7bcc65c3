"""Runs the scripts of tests/support/node; npm installs their packages when they are needed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parent / "node"
INSTALL_S = 120
RUN_S = 30


def installed() -> str:
    """Path of Node, with the packages in place; skips the test where either cannot be had."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None:
        pytest.skip("Node is not installed")
    stamp = FOLDER / "node_modules" / ".package-lock.json"
    if stamp.exists() and stamp.stat().st_mtime >= (FOLDER / "package-lock.json").stat().st_mtime:
        return node
    if npm is None:
        pytest.skip("npm is not installed")
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    try:
        done = subprocess.run(command, cwd=FOLDER, capture_output=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        pytest.skip("the npm registry does not answer")
    if done.returncode:
        pytest.skip(f"npm ci failed: {done.stderr.decode(errors='replace')[-200:]}")
    return node


async def run_node(node: str, script: str, *arguments: str, **variables: str) -> Any:
    """Run a script; return the JSON that it prints.

    Raises:
        AssertionError: It failed; the text is what it wrote to its standard error.
    """
    process = await asyncio.create_subprocess_exec(
        node,
        script,
        *arguments,
        cwd=FOLDER,
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(RUN_S):
            printed, complaint = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, complaint.decode()
    return json.loads(printed)
