"""Ask the running deployment one question through its OpenAI API; the last step of scripts/try."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from pathlib import Path

QUESTION = "In one sentence: what is a robot?"


def main() -> None:
    command = Path(sys.executable).with_name("orin-deploy")
    status = json.loads(subprocess.run([command, "status", "--json"], check=True, stdout=subprocess.PIPE).stdout)
    endpoint = status["endpoint"]
    payload = {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 80, "temperature": 0}
    request = urllib.request.Request(
        f"{endpoint}/v1/chat/completions", json.dumps(payload).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as response:
        answer = json.load(response)
    print(f"\nQuestion  {QUESTION}")
    print(f"Answer    {answer['choices'][0]['message']['content'].strip()}")
    print(f"Speed     {answer['timings']['predicted_per_second']:.1f} tokens/s on {status['model']}")
    print(f"Endpoint  {endpoint}/v1 (OpenAI API)\n\nNext:")
    for line in (
        f'curl {endpoint}/v1/chat/completions -d \'{{"messages":[{{"role":"user","content":"Hello"}}]}}\'',
        f"{command} status",
        f"{command} plan --profile agx32        what it would do on a Jetson AGX Orin 32GB",
        f"{command} up --set ctx_size=4096      change one thing; only what differs is done",
        f"{command} down",
    ):
        print(f"  {line}")


if __name__ == "__main__":
    main()
