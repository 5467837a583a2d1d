"""Old command lines and profiles, in today's keys: what each word is now, and what in it never worked. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orin_deploy.intent import translate_words
from orin_deploy.intent.spec import Value
from orin_deploy.intent.translate_build import of_build, of_power
from orin_deploy.intent.translate_commands import Launch, launch
from orin_deploy.intent.translate_container import Aside, Container
from orin_deploy.intent.translate_finish import finish
from orin_deploy.intent.translate_reading import NAMES_OFF, Note, Reading
from orin_deploy.intent.translate_server import of_arguments, of_name
from orin_deploy.intent.translate_serves import perhaps, surely
from orin_deploy.intent.translate_words import Assigned, Command, Said

__all__ = ["Note", "Translation", "translate"]

# Programs that answer one prompt and end, with the word after them: `llama` takes a verb.
_ONE_RUN = (
    r"(?:main|(?:.+-)?(?:cli|completion|run|simple|simple-chat|speculative|speculative-simple|lookup|lookahead))"
    r"(?:\.exe)?(?: .*)?|llama (?:cli|run|chat|completion)"
)
_MEASURES = "it measures or converts: nothing in it belongs to a server"


@dataclass(frozen=True)
class Translation:
    """What a pasted text comes to: the model and the values by today's keys, what each came from, and the notes."""

    model: str | None
    values: dict[str, Value]
    origin: dict[str, str]
    notes: tuple[Note, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing at all could be read."""
        understood = any(note.verdict not in ("unknown", "passed", "invalid") for note in self.notes)
        return self.model is None and not self.values and not understood


def translate(text: str) -> Translation:
    """Today's profile for a command line, a script, a profile, a preset, a unit, a compose file or a Modelfile."""
    everything = translate_words.read(text)
    reading = Reading(has_server=any(map(_surely_serves, everything)))
    for said in everything:
        match said:
            case Assigned():
                _take_assigned(reading, said)
            case Container():
                _take_container(reading, said)
            case Aside():
                reading.note(said.word, "passed", said.what, said.next or "left out")
            case Command():
                _take_command(reading, said)
    finish(reading)
    ordered = reading.ordered()
    return Translation(reading.model, ordered, reading.origin, tuple(dict.fromkeys(reading.notes)))


def _surely_serves(said: Said) -> bool:
    match said:
        case Container():
            return surely(said.image, map(launch, said.commands))
        case Command():
            taken = launch(said.words)
            return surely(taken.image, (taken,))
    return False


def _take_assigned(reading: Reading, said: Assigned) -> None:
    if said.of == "profile":
        of_name(reading, said.name, said.value, f"{said.name}: {said.value}")
    else:
        _take_environment(reading, said.name, said.value)


def _take_environment(reading: Reading, name: str, value: str) -> None:
    """An environment variable; what no tool that is known here reads is passed over in silence."""
    word = f"{name}={value}"
    if name.startswith("LLAMA_ARG_"):
        option = name.removeprefix("LLAMA_ARG_").lower()
        off = NAMES_OFF.get(option)  # of a switch's --no- form any value says no
        of_name(reading, off.key, "off", word) if off is not None else of_name(reading, option, value, word)
    elif name.startswith("OLLAMA_"):
        of_name(reading, name.lower(), value, word)
    elif name == "CMAKE_ARGS":
        of_build(reading, tuple(value.split()))
    elif name in ("LLAMA_API_KEY", "HF_TOKEN"):
        of_name(reading, {"LLAMA_API_KEY": "api_key"}.get(name, "hf_token"), value, f"{name}=…")
    elif name == "CPUAffinity":
        reading.pin(word, value)


def _take_container(reading: Reading, said: Container) -> None:
    """A container as the server in it, unless it is clearly another program's."""
    launched = [launch(words) for words in said.commands] or [Launch()]
    if not _is_taken(reading, said.name or said.image, said.image, launched, said.environment):
        return
    for aside in said.asides:
        reading.note(aside.word, "passed", aside.what, aside.next or "left out")
    if launched == [Launch()]:  # the image's own program
        launched[0].kind = "server"
    server = next((each for each in launched if each.kind == "server"), launched[-1])
    server.environment[:0] = said.environment
    server.port, server.cpus = said.port, server.cpus or said.cpus
    for each in launched:
        each.mounts = {**said.mounts, **each.mounts}
        _take_launch(reading, each)


def _is_taken(
    reading: Reading, word: str, image: str, launched: Sequence[Launch], variables: Iterable[tuple[str, str]]
) -> bool:
    """Whether a container is to be read; a note says of any other why it is not."""
    if surely(image, launched) or any(each.kind not in (None, "server") for each in launched):
        return True  # it builds, say, or is a draft's own process
    may = perhaps(reading, launched, variables)
    if may and not reading.has_server:
        return True
    why = "is not what serves the model: another one here is" if may else "serves no model"
    reading.note(word, "passed", f"{image or 'it'} {why}", "leave it out")
    return False


def _take_command(reading: Reading, said: Command) -> None:
    _take_launch(reading, launch(said.words))


def _take_launch(reading: Reading, taken: Launch) -> None:
    if taken.image and not _is_taken(reading, f"docker run {taken.image}", taken.image, (taken,), taken.environment):
        return
    reading.mounts = taken.mounts
    for name, value in taken.environment:
        _take_environment(reading, name, value)
    reading.mounts = {}
    shown = re.split(r"[/\\]", taken.program)[-1]
    if taken.container:
        what = "orin-deploy serves on the board itself, without a container; -v only told where the files are"
        reading.note(f"docker run {', '.join(taken.container)}", "passed", what, "left out")
    match taken.kind:
        case "power":
            of_power(reading, shown, taken.args)
        case "build":
            of_build(reading, (shown, *taken.args))
        case "measure":
            reading.note(
                shown, "passed", f"{shown}: {_MEASURES}", "orin-deploy bench and orin-deploy gguf do such work"
            )
        case "rpc":
            _take_rpc(reading, taken)
        case "server":
            _take_server(reading, taken, shown)
        case _ if not reading.has_server and any(word.startswith("-") and reading.knows(word) for word in taken.args):
            _take_server(reading, taken, shown)
        case _ if shown:
            reading.note(shown, "passed", f"{shown} neither serves nor builds nor sets power", "leave it out")
        case _ if taken.cpus:
            reading.pin(*taken.cpus)


def _take_server(reading: Reading, taken: Launch, program: str) -> None:
    if taken.cpus:
        reading.pin(*taken.cpus)
    for name in taken.wrapped:
        reading.note(name, "no-effect", f"{name}: orin-deploy starts the server itself", "prio sets its priority")
    reading.mounts = taken.mounts
    reading.is_one_run = re.fullmatch(_ONE_RUN, " ".join((program, *taken.args[:1]))) is not None
    defined = tuple(word for word in taken.args if re.match(r"-D[A-Z]\w*=", word))
    of_build(reading, defined)
    of_arguments(reading, program, tuple(word for word in taken.args if word not in defined))
    if taken.port:
        reading.set("port", taken.port[1], taken.port[0])
    reading.mounts, reading.is_one_run = {}, False


def _take_rpc(reading: Reading, taken: Launch) -> None:
    """A draft's own process, which `up` starts itself."""
    words = dict(zip(taken.args, taken.args[1:], strict=False))
    said = f"{taken.program} {' '.join(taken.args)}".strip()
    reading.set("placement.draft_cpus", taken.cpus[1] if taken.cpus else "auto", said)
    for flags, key in ((("-p", "--port"), "placement.draft_port"), (("-d", "--device"), "placement.draft_device")):
        for flag in flags:
            if flag in words:
                reading.set(key, words[flag], f"{flag} {words[flag]}")
    reading.note(said, "owned", "orin-deploy starts the draft's own process itself", "draft: a model")
