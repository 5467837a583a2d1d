"""The service's state, read from a /proc of our own."""

from __future__ import annotations

import sys
from pathlib import Path

from orin_deploy.host import Host
from orin_deploy.parts.service import inspect
from tests.specs import make_spec


def test_a_port_of_another_user_is_seen_while_our_server_does_not_run(tmp_path: Path) -> None:
    # Another user's sockets are listed, but whose they are cannot be read: neither program has a number then.
    net = tmp_path / "root/proc/net"
    net.mkdir(parents=True)
    address = "0100007F" if sys.byteorder == "little" else "7F000001"
    (net / "tcp").write_text(
        f"  sl  local_address\n   0: {address}:1F90 00000000:0000 0A 0:0 00:0 0 0 0 4711 1 0 100 0 0 10 0\n"
    )
    host = Host(tmp_path / "root", {"ORIN_DEPLOY_HOME": str(tmp_path / "home"), "PATH": "/usr/bin:/bin"})
    spec = make_spec(tmp_path / "home", Path("/engine"), Path("/model.gguf"), 8080)
    holder = inspect(host, spec).holder
    assert holder is not None
    assert (holder.pid, holder.deployment) == (None, None)
