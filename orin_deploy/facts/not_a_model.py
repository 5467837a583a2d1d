"""Files that are not a model, named for what they are: from their first bytes, before anything is believed."""

from __future__ import annotations

import re

from orin_deploy.errors import Exit, Refused

HEAD_BYTES = 512  # enough of a file's beginning to recognise it

# The magic is a little-endian uint32 spelled forwards in the old sources, so the bytes in the file read backwards.
_OLD_GGML = {b"lmgg": "ggml", b"fmgg": "ggmf", b"tjgg": "ggjt", b"algg": "ggla"}
_OLD_GGML |= {name.encode(): name for name in _OLD_GGML.values()}


class NotAModel(Refused):
    """A file that cannot be served; `rule` names the finding ("gguf.lfs-pointer", "gguf.truncated", …)."""

    def __init__(self, rule: str, message: str, hint: str | None = None, *, code: Exit | None = None) -> None:
        super().__init__(message, hint, code=code)
        self.rule = rule


def recognise(head: bytes, label: str) -> NotAModel | None:
    """What a file is instead of a GGUF, from its first bytes; None when it does begin like a GGUF."""
    if not head:
        return NotAModel("gguf.empty", f"{label} is empty (0 bytes)", "fetch it again and check the free disk space")
    if head[:4] == b"GGUF":
        return _version(head, label)
    if head[:4] == b"FUGG":
        return _endian(label)
    return _pointer(head, label) or _markup(head, label) or _other_format(head, label) or _unknown(head, label)


def _version(head: bytes, label: str) -> NotAModel | None:
    if len(head) < 8:
        return None  # the reader says how much is missing
    version = int.from_bytes(head[4:8], "little")
    if version in (2, 3):
        return None
    if version & 0xFFFF == 0 and version:  # llama.cpp's own test: a big-endian 3 reads as 0x03000000
        return _endian(label)
    hint = "convert the model again with today's convert_hf_to_gguf.py, or fetch a newer file"
    if version > 3:
        hint = "this file is newer than we know: update orin-deploy and the engine, or fetch a version 3 file"
    return NotAModel("gguf.version", f"{label} is GGUF version {version}; only versions 2 and 3 can be loaded", hint)


def _endian(label: str) -> NotAModel:
    return NotAModel(
        "gguf.endian",
        f"{label} is a big-endian GGUF; Jetson and x86 are little-endian",
        "fetch the little-endian file, or convert it with gguf-py's gguf-convert-endian",
    )


def _pointer(head: bytes, label: str) -> NotAModel | None:
    if not head.startswith(b"version https://git-lfs"):
        return None
    size = re.search(rb"^size (\d{1,18})\s*$", head, re.M)
    real = f"the real file has {int(size[1])} bytes" if size else "the real file is elsewhere"
    return NotAModel(
        "gguf.lfs-pointer",
        f"{label} is a Git LFS pointer, not the model: {real}",
        "run `git lfs pull` in its repository, or give the model as hf:OWNER/REPO/FILE",
    )


def _markup(head: bytes, label: str) -> NotAModel | None:
    text = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith((b"<!doctype", b"<html", b"<head", b"<!--", b"<?xml")):
        return NotAModel(
            "gguf.html",
            f"{label} is a web page, not a model",
            "use the file's own address (on Hugging Face /resolve/ instead of /blob/), or hf:OWNER/REPO/FILE",
        )
    if text.startswith((b'{"', b"{ ", b"{\n", b"{\r")):
        return NotAModel("gguf.json", f"{label} is a JSON text, not a model", "read it: it may be a server's error")
    return None


def _other_format(head: bytes, label: str) -> NotAModel | None:
    if head[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return NotAModel(
            "gguf.zip",
            f"{label} is a zip archive (or a PyTorch checkpoint, which is one), not a GGUF",
            "unzip it, or convert the checkpoint with convert_hf_to_gguf.py",
        )
    if head[:4] in _OLD_GGML:
        return NotAModel(
            "gguf.old-ggml",
            f"{label} is in the old {_OLD_GGML[head[:4]]} format, from before GGUF (August 2023)",
            "fetch the model as GGUF; old files are no longer read",
        )
    if head[8:9] == b"{" and 0 < int.from_bytes(head[:8], "little") < 1 << 30:
        return NotAModel(
            "gguf.safetensors",
            f"{label} is a safetensors file, not a GGUF",
            "convert its repository with convert_hf_to_gguf.py, or fetch a GGUF of the same model",
        )
    return None


def _unknown(head: bytes, label: str) -> NotAModel:
    seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in head[:4])
    return NotAModel(
        "gguf.magic",
        f"{label} does not begin with GGUF but with '{seen}' (hex {head[:4].hex()})",
        "fetch the model again and compare its size and checksum with the source",
    )
