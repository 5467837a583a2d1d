"""The script that sets power at boot and puts it back, and the unit that runs it at boot.

A script of our own and not `orin-deploy`, which may live in a virtual environment that is gone by then. It looks a
mode's number up by its name when it runs: numbers change with a JetPack, names do not.
"""

from __future__ import annotations

import shlex

from orin_deploy.parts.power.where import Where
from orin_deploy.parts.service.unit import command_line

TRIES, PAUSE_S = 30, 2

_SCRIPT = r"""#!/bin/sh
# Written by orin-deploy. Sets a power mode by name and pins the clocks; puts back what was there before.
# usage: power.sh boot MODE|- on|keep    set them, again and again while the devices below /sys are still to come
#        power.sh back MODE              the mode that was active before; nothing when it is active
#        power.sh restore FILE           the clocks that `jetson_clocks --store FILE` saw; nothing without the file
nvpmodel={nvpmodel}
jetson_clocks={jetson_clocks}
conf={conf}

active() {{
    "$nvpmodel" -q 2>&1 | grep -qxF "NV Power Mode: $1"
}}

number() {{
    sed -n "s/^< *POWER_MODEL  *ID=\([0-9][0-9]*\)  *NAME=$1 *>.*/\1/p" "$conf"
}}

mode() {{
    "$nvpmodel" -m "$(number "$1")" && active "$1"
}}

all() {{
    {{ [ "$1" = - ] || mode "$1"; }} && {{ [ "$2" = keep ] || "$jetson_clocks"; }}
}}

case "$1" in
boot)
    tries=0
    until all "$2" "$3"; do
        tries=$((tries + 1))
        [ "$tries" -lt {tries} ] || exit 1
        sleep {pause}
    done
    ;;
back)
    [ -n "$(number "$2")" ] || {{ echo "there is no power mode $2 any more: left as it is"; exit 0; }}
    active "$2" || mode "$2"
    ;;
restore)
    [ ! -e "$2" ] || "$jetson_clocks" --restore "$2"
    ;;
esac
"""


def script_text(where: Where, nvpmodel: str | None, jetson_clocks: str | None) -> str:
    """The whole script, for tools and table at these paths."""
    return _SCRIPT.format(
        nvpmodel=shlex.quote(nvpmodel or "/usr/sbin/nvpmodel"),
        jetson_clocks=shlex.quote(jetson_clocks or "/usr/bin/jetson_clocks"),
        conf=shlex.quote(where.conf),
        tries=TRIES,
        pause=PAUSE_S,
    )


def unit_text(where: Where, name: str, server_unit: str, mode: str | None, clocks: bool) -> str:
    """The unit: after the vendor's, before the server.

    Like nvpmodel.service it does not stay active (no RemainAfterExit): `systemctl isolate`, as in going headless,
    then runs both again; the vendor's alone would unpin the clocks and ours would sleep through it.
    """
    words = ("/bin/sh", where.script, "boot", mode or "-", "on" if clocks else "keep")
    lines = [
        f"# Written by orin-deploy for the deployment {name}; `orin-deploy up` writes it anew.",
        "[Unit]",
        f"Description=orin-deploy {name}: power mode and clocks",
        "After=nv.service nvpower.service nvpmodel.service",
        f"Before={server_unit}",
        "",
        "[Service]",
        "Type=oneshot",
        f"ExecStart={command_line(words)}",
        f"TimeoutStartSec={2 * TRIES * PAUSE_S}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"
