"""The two forms of a launch, as whole texts: a systemd unit, and the launch file of our own supervisor."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from orin_deploy.host.processes import START_LIMIT, START_MARK
from orin_deploy.intent.placement import cpu_text
from orin_deploy.intent.spec import Spec
from orin_deploy.parts.service.where import Where

DRAFT = "the draft process"

# systemd hides these folders from a service with a dynamic user or gives it its own; what the server reads in them is
# bound in. That also lets it read a model in a home folder that only its owner may enter.
_HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")

# The unit counts as started once the model is loaded. Bash alone, for curl is not on every image; `kill -0` ends the
# wait with the server.
_WAIT = (
    'while kill -0 "$MAINPID" 2>/dev/null; do '
    '(exec 3<>/dev/tcp/{host}/{port} && printf "GET /health HTTP/1.0\\r\\n\\r\\n" >&3 && '
    'read -r _ code _ <&3 && [ "$code" = 200 ]) 2>/dev/null && exit 0; sleep 0.5; done; exit 1'
)


_WAIT_FOR_PORT = (
    'while kill -0 "$MAINPID" 2>/dev/null; do '
    "(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null && exit 0; sleep 0.2; done; exit 1"
)


def argv(spec: Spec) -> tuple[str, ...]:
    """The server's words as they are run: under systemd with its own user the API key comes as a credential."""
    service = spec.service
    if service.manager != "systemd" or service.user is None or service.api_key_file is None:
        return service.argv
    credential = f"/run/credentials/{service.unit}/api_key"
    return tuple(credential if word == service.api_key_file else word for word in service.argv)


def launch_text(spec: Spec, where: Where, taskset: str) -> str:
    """The launch file: what the supervisor runs, with which environment, and how patient it is."""
    document: dict[str, Any] = {
        "argv": [taskset, "-c", cpu_text(spec.placement.cpus), *argv(spec)],
        "env": {"XDG_CONFIG_HOME": where.config, **dict(spec.service.env)},
        "log": spec.service.log,
        "start_timeout_s": spec.service.start_timeout_s,
        "restart_delay_s": spec.service.restart_delay_s,
    }
    if (draft := spec.draft_process) is not None:
        words = [taskset, "-c", cpu_text(spec.placement.draft_cpus), *draft.argv]
        document["companions"] = [{"name": DRAFT, "argv": words, "port": draft.port}]
    return json.dumps(document, indent=1) + "\n"


def unit_text(spec: Spec, where: Where, taskset: str, groups: tuple[str, ...]) -> str:
    """The systemd unit. With `user` set (as root) the server gets a dynamic user of that name: there is no account
    to create and none to leave behind, and it can write nowhere.
    """
    service = spec.service
    system = where.of_system
    reads = _reads(spec)
    command = (taskset, "-c", cpu_text(spec.placement.cpus), *argv(spec))
    host, port = service.endpoint.removeprefix("http://").rsplit(":", 1)
    wait = _WAIT.format(host=host.strip("[]"), port=port)
    env = {"XDG_CONFIG_HOME": where.config, **dict(service.env)}
    lines = [
        f"# Written by orin-deploy for the deployment {spec.name}; `orin-deploy up` writes it anew.",
        "[Unit]",
        f"Description=orin-deploy {spec.name}: llama-server on port {service.port}",
        "After=network.target",
        *([f"BindsTo={where.draft_unit}", f"After={where.draft_unit}"] if spec.draft_process is not None else []),
        *([f"RequiresMountsFor={' '.join(map(quote, reads))}"] if system else []),
        *_start_limit(spec),
        "",
        "[Service]",
        "Type=exec",
        f"ExecStartPre={command_line(('/bin/echo', START_MARK))}",
        f"ExecStart={command_line(command)}",
        f"ExecStartPost={command_line(('/bin/bash', '-c', wait))}",
        f"TimeoutStartSec={service.start_timeout_s}",
        "TimeoutStopSec=20",
        # Not on-failure: llama-server exits with 0 on any SIGTERM, also on one from an out-of-memory daemon.
        "Restart=always",
        f"RestartSec={service.restart_delay_s}",
        *(environment(name, value) for name, value in env.items()),
        "NoNewPrivileges=yes",
        *(["LimitMEMLOCK=infinity"] if _locks_memory(spec) else []),
        *([*_own_user(spec, reads, groups), *_credential(spec)] if system and service.user is not None else []),
        "",
        "[Install]",
        f"WantedBy={'multi-user.target' if system else 'default.target'}",
    ]
    return "\n".join(lines) + "\n"


def draft_unit_text(spec: Spec, where: Where, taskset: str, groups: tuple[str, ...]) -> str | None:
    """The systemd unit of the draft's own process, None where there is none.

    The server's unit is bound to it: whichever ends takes the other along. What stopped the server that way is no
    failure of the server, so its own Restart= does not bring it back: this unit's start does, by Wants=.
    """
    draft = spec.draft_process
    if draft is None:
        return None
    service, env = spec.service, dict(spec.service.env)
    command = (taskset, "-c", cpu_text(spec.placement.draft_cpus), *draft.argv)
    wait = _WAIT_FOR_PORT.format(port=draft.port)
    lines = [
        f"# Written by orin-deploy for the deployment {spec.name}; `orin-deploy up` writes it anew.",
        "[Unit]",
        f"Description=orin-deploy {spec.name}: draft on port {draft.port}",
        f"PartOf={where.unit}",
        f"Wants={where.unit}",
        *_start_limit(spec),
        "",
        "[Service]",
        "Type=exec",
        f"ExecStart={command_line(command)}",
        f"ExecStartPost={command_line(('/bin/bash', '-c', wait))}",
        f"TimeoutStartSec={service.start_timeout_s}",
        "TimeoutStopSec=20",
        "Restart=always",
        f"RestartSec={service.restart_delay_s}",
        *(environment(name, value) for name, value in env.items()),
        *(_own_user(spec, (_engine(spec),), groups) if where.of_system and service.user is not None else []),
        "NoNewPrivileges=yes",  # last: by it a unit is known to be whole
    ]
    return "\n".join(lines) + "\n"


def environment(name: str, value: str) -> str:
    """The line of a unit that sets a variable."""
    return f"Environment={quote(f'{name}={value}')}"


def command_line(words: tuple[str, ...]) -> str:
    """Words as an Exec line takes them: `$` would name a variable, and a lone `;` would end the command."""
    return " ".join("\\;" if word == ";" else quote(word).replace("$", "$$") for word in words)


def quote(word: str) -> str:
    """One word of a unit file, quoted as systemd.syntax(7) says; `%` would begin a specifier."""
    escaped = word.replace("\\", "\\\\").replace("%", "%%").replace("\n", "\\n").replace("\t", "\\t")
    plain = escaped == word and word and not any(character in " \"'" for character in word)
    return word if plain else '"' + escaped.replace('"', '\\"') + '"'


def _own_user(spec: Spec, reads: tuple[str, ...], groups: tuple[str, ...]) -> list[str]:
    service = spec.service
    hidden = [path for path in reads if any(PurePosixPath(path).is_relative_to(folder) for folder in _HIDDEN)]
    return [
        f"User={service.user}",
        "DynamicUser=yes",
        # A group that does not exist would keep the unit from starting.
        *([f"SupplementaryGroups={' '.join(groups)}"] if spec.build.cuda and groups else []),
        "ProtectHome=tmpfs",
        *(f"BindReadOnlyPaths={quote(path)}" for path in hidden),
    ]


def _start_limit(spec: Spec) -> list[str]:
    service = spec.service
    seconds = START_LIMIT * (service.start_timeout_s + service.restart_delay_s)
    return [f"StartLimitIntervalSec={seconds}", f"StartLimitBurst={START_LIMIT}"]


def _credential(spec: Spec) -> list[str]:
    """The key's file may be root's alone. The line takes the rest as the path, unquoted."""
    file = spec.service.api_key_file
    return [f"LoadCredential=api_key:{file.replace('%', '%%')}"] if file else []


def _engine(spec: Spec) -> str:
    return spec.build.engine or spec.build.folder


def _reads(spec: Spec) -> tuple[str, ...]:
    """What the server reads: its engine, the model's files, and every file its options name."""
    named = [word for word in spec.service.argv[1:] if word.startswith("/") and word != spec.service.api_key_file]
    paths = (_engine(spec), *(file.path for file in spec.files), *named)
    return tuple(dict.fromkeys(paths))


def _locks_memory(spec: Spec) -> bool:
    setting = spec.settings.get("load_mode")
    return setting is not None and "mlock" in str(setting.value)
