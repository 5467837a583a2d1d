"""The engine's programs: finding them, quantizing, and the server's own tokens."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from make_draft import FEWEST, PROMPT_TOKENS
from orin_deploy.errors import OrinError, UsageError
from orin_deploy.host import Host


def find_engine(wanted: Path | None, host: Host) -> Path:
    """The folder of llama-server and llama-quantize: the one named, the one on PATH, or orin-deploy's newest."""
    on_path = shutil.which("llama-server")
    built = sorted(host.data.glob("engines/*/bin/llama-server"), key=lambda path: path.stat().st_mtime)
    folder = wanted or (Path(on_path).parent if on_path else built[-1].parent if built else None)
    if folder is None:
        raise OrinError("no engine was found on this machine", "orin-deploy up builds one; or name one: --engine DIR")
    for program in ("llama-server", "llama-quantize"):
        if not os.access(folder / program, os.X_OK):
            raise OrinError(f"{folder} has no {program}", "name an engine's bin folder: --engine DIR")
    return folder


def quantize(engine: Path, source: Path, out: Path, kind: str, *flags: str) -> None:
    """llama-quantize into a new file, which is there whole or not at all."""
    part = out.with_name(out.name + ".part")
    argv = (str(engine / "llama-quantize"), "--allow-requantize", *flags, str(source), str(part), kind)
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    if done.returncode:
        part.unlink(missing_ok=True)
        words = "\n".join(done.stdout.splitlines()[-10:])
        raise OrinError(f"llama-quantize failed:\n{words}", f"check the free space of {out.parent}")
    part.replace(out)


def tokenized(engine: Path, target: Path, prompts: list[str], log: Path) -> list[list[int]]:
    """The prompts in the target's chat template, as the server itself tokenizes them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    argv = [str(engine / "llama-server"), "-m", str(target), "--port", str(port), "-c", "512", "-np", "1", "-ngl", "0"]

    def post(path: str, document: dict[str, Any]) -> Any:
        data = json.dumps(document).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    with log.open("w") as words:
        server = subprocess.Popen([*argv, "-fit", "off", "--no-warmup"], stdout=words, stderr=words)
    try:
        for _ in range(600):
            time.sleep(0.2)
            if server.poll() is not None:
                raise OrinError("llama-server ended before it answered", f"its words are in {log}")
            try:
                post("/tokenize", {"content": ""})
                break
            except OSError:
                continue
        ids = []
        for prompt in prompts:
            text = post("/apply-template", {"messages": [{"role": "user", "content": prompt}]})["prompt"]
            ids.append(post("/tokenize", {"content": text, "add_special": True, "parse_special": True})["tokens"])
        short = [each for each in ids if len(each) <= PROMPT_TOKENS]
        if len(short) < FEWEST:
            raise UsageError(
                f"only {len(short)} of the prompts have at most {PROMPT_TOKENS} tokens", "add shorter ones"
            )
        return short
    finally:
        server.terminate()
        server.wait()
