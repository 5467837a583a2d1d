"""The GGUF header: metadata and the list of tensors, read without the weights, from a file or by ranges."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from struct import Struct
from struct import error as struct_error

from orin_deploy.errors import Exit
from orin_deploy.facts import not_a_model
from orin_deploy.facts.gguf_types import LongArray, Tensor, Value
from orin_deploy.facts.gguf_walk import Vocabulary, Window, read_alignment, read_metadata, read_tensors, truncated
from orin_deploy.facts.not_a_model import NotAModel

_PART = re.compile(r"^(?P<stem>.*)-(?P<no>\d{5})-of-(?P<count>\d{5})\.gguf$")
_LENGTH = Struct("<Q")


@dataclass(frozen=True)
class Tokens:
    """Where the texts of a vocabulary's tokens stand; they are read when they are asked for."""

    count: int
    start: int
    end: int
    read: Callable[[int, int], bytes]  # (offset, length), of the file or by a range

    def texts(self) -> list[bytes]:
        """Each token's text; raises NotAModel when the file is no longer the one whose header was read."""
        body, position, found = self.read(self.start, self.end - self.start), 0, []
        try:
            for _ in range(self.count):
                (length,) = _LENGTH.unpack_from(body, position)
                position += 8 + length
                found.append(body[position - length : position])
        except struct_error:
            position = -1
        if position != len(body) or position != self.end - self.start:
            raise NotAModel("gguf.corrupt", "the model's file changed while it was read", "run the same command again")
        return found


@dataclass(frozen=True)
class Header:
    """All that stands before the weights. Bytes throughout; `file_bytes` is None for a source of unknown size."""

    label: str
    version: int
    metadata: dict[str, Value]
    tensors: tuple[Tensor, ...]
    data_offset: int
    alignment: int
    file_bytes: int | None
    promised_bytes: int  # where the last tensor ends: a shorter file is truncated
    vocab_fingerprint: str | None  # sha256 over token texts, their types, special ids, and the tokenizer's names
    tokens: Tokens | None = field(default=None, compare=False, repr=False)

    @property
    def split_no(self) -> int:
        return self.number("split.no", 0)

    @property
    def split_count(self) -> int:
        return self.number("split.count", 1)

    @property
    def n_vocab(self) -> int:
        """Tokens in the vocabulary, 0 when the file carries none."""
        tokens = self.metadata.get("tokenizer.ggml.tokens")
        return tokens.count if isinstance(tokens, LongArray) else len(tokens) if isinstance(tokens, tuple) else 0

    def number(self, key: str, default: int) -> int:
        """An integer from the metadata; the default when the key is absent or holds something else."""
        value = self.metadata.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    def text(self, key: str) -> str | None:
        """A string from the metadata, or None."""
        value = self.metadata.get(key)
        return value if isinstance(value, str) else None


def read_file(path: Path, *, fingerprint: bool = True) -> Header:
    """The header of one local file; raises NotAModel for anything that llama.cpp would not load.

    Part 1 of a split set stands for itself here: `read_set` reads all parts.
    """
    label = path.name or str(path)
    try:
        status = path.stat()
        if stat.S_ISDIR(status.st_mode):
            raise NotAModel("gguf.directory", f"{path} is a folder, not a model file", "name a .gguf file inside it")
        if not stat.S_ISREG(status.st_mode):
            raise NotAModel("gguf.unreadable", f"{path} is not a regular file", "name a .gguf file")
        with path.open("rb", buffering=0) as file:

            def read(offset: int, length: int) -> bytes:
                file.seek(offset)
                return file.read(length)

            header = read_ranges(read, status.st_size, label, fingerprint=fingerprint)
    except FileNotFoundError:
        raise NotAModel(
            "gguf.missing", f"there is no file {path}", "check the path, or fetch the model", code=Exit.USAGE
        ) from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise NotAModel("gguf.unreadable", f"{path} cannot be read: {why}", "check its permissions") from None
    check_name(header, label)
    return header if header.tokens is None else replace(header, tokens=replace(header.tokens, read=_reader(path)))


def _reader(path: Path) -> Callable[[int, int], bytes]:
    def read(offset: int, length: int) -> bytes:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)

    return read


def read_set(path: Path) -> tuple[Header, ...]:
    """The headers of all parts of a model, in order: one for an ordinary file, N from name-00001-of-0000N.gguf on."""
    first = read_file(path)
    if first.split_count <= 1:
        return (first,)
    paths = [path.with_name(name) for name in part_names(path.name)]
    if first.split_no:
        raise NotAModel(
            "gguf.split-name",
            f"{path.name} is part {first.split_no + 1} of {first.split_count}; the engine starts from the first",
            f"give {paths[0].name}",
        )
    if missing := [part.name for part in paths if not part.is_file()]:
        raise NotAModel(
            "gguf.split-name",
            f"{path.name} is one of {len(paths)} parts and {len(missing)} are missing: {', '.join(missing[:8])}",
            "fetch the missing parts into the same folder",
        )
    return (first, *(read_file(part, fingerprint=False) for part in paths[1:]))


def part_names(name: str) -> tuple[str, ...]:
    """The names of all parts of the set a file belongs to by its name; only its own where it belongs to none."""
    part = _PART.match(name)
    if part is None:
        return (name,)
    return tuple(f"{part['stem']}-{no:05d}-of-{part['count']}.gguf" for no in range(1, int(part["count"]) + 1))


def read_ranges(read: Callable[[int, int], bytes], size: int | None, label: str, *, fingerprint: bool = True) -> Header:
    """The header of a file read piece by piece with `read(offset, length)`; at most 1 MiB beyond it is asked for.

    `size` is the whole file's, None when unknown (then a truncated file cannot be told). `label` is for messages.
    """
    window = Window(read, size, label)
    window.want(not_a_model.HEAD_BYTES, required=False)
    if refusal := not_a_model.recognise(bytes(window.data[: not_a_model.HEAD_BYTES]), label):
        raise refusal
    window.want(24)
    version, n_tensors, n_values = Struct("<4xIQQ").unpack_from(window.data, 0)
    window.position = 24
    vocabulary = Vocabulary() if fingerprint else None
    metadata = read_metadata(window, n_values, vocabulary)
    alignment = read_alignment(metadata, label)
    tensors = read_tensors(window, n_tensors, alignment)
    data_offset = -(-window.position // alignment) * alignment if tensors else window.position
    promised = max([data_offset + tensor.offset + tensor.bytes for tensor in tensors], default=data_offset)
    if size is not None and size < promised:
        raise truncated(label, size, promised)
    digest = vocabulary.digest(metadata) if vocabulary else None
    header = Header(label, version, metadata, tensors, data_offset, alignment, size, promised, digest)
    span = vocabulary.spans.get(Vocabulary.ARRAYS[0]) if vocabulary else None
    return header if span is None else replace(header, tokens=Tokens(header.n_vocab, *span, read))


def check_set(parts: Sequence[Header]) -> None:
    """Raises NotAModel where the parts of a split set, in order, do not make one model together."""
    first, count = parts[0], max(parts[0].split_count, 1)
    if count == 1:
        return
    if len(parts) < count:
        raise NotAModel(
            "gguf.split-name",
            f"{first.label} is one of {count} parts; {len(parts)} were read",
            "fetch the missing parts too",
        )
    for no, part in enumerate(parts):
        if (part.split_no, part.split_count) != (no, count):
            raise NotAModel(
                "gguf.split-name",
                f"{part.label} is no part {no + 1} of {count}, whatever its name says: it is of another model",
                f"fetch the parts of {first.label} again into a folder of their own",
            )
    said, there = first.number("split.tensors.count", 0), sum(len(part.tensors) for part in parts)
    if said and said != there:
        raise NotAModel(
            "gguf.split-name",
            f"the {count} parts from {first.label} on hold {there} tensors, and its header says {said}: "
            "they are not all of one model",
            f"fetch the parts of {first.label} again into a folder of their own",
        )


def check_name(header: Header, name: str) -> None:
    """Raises NotAModel for a part of a split set under another name: llama.cpp finds the other parts by it."""
    count, here = header.split_count, header.split_no + 1
    if count <= 1:
        return
    part = _PART.match(name)
    if part is None:
        raise NotAModel(
            "gguf.split-name",
            f"{name} is part {here} of {count}, renamed or glued together from all {count} parts",
            f"name the parts NAME-00001-of-{count:05d}.gguf … and give the first, or join them with llama-gguf-split",
        )
    if int(part["count"]) != count or int(part["no"]) != here:
        said = f"part {int(part['no'])} of {int(part['count'])}"
        raise NotAModel(
            "gguf.split-name",
            f"{name} is {said} by its name but part {here} of {count} by its header",
            "give the parts their own names back",
        )
