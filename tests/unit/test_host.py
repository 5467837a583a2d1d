"""The host's own acts, on a real disk and with real commands."""

from __future__ import annotations

import contextlib
import io
import os
import resource
import tarfile
import time
import zipfile
from pathlib import Path

import pytest

from orin_deploy.actions import Link, Remove, Run, Unpack, Write
from orin_deploy.errors import CommandFailed, OrinError
from orin_deploy.host import Host, commands, files


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(environ={**os.environ, "ORIN_DEPLOY_HOME": str(tmp_path / "home")})


def test_paths_of_another_root(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_bytes(b"model\0")
    host = Host(tmp_path, {"ORIN_DEPLOY_HOME": str(tmp_path / "elsewhere")})
    assert host.read("/proc/cpuinfo") == "model"
    assert host.read("/proc/absent") is None
    assert host.glob("/proc/c*") == ("/proc/cpuinfo",)
    assert host.path("/etc/x") == tmp_path / "etc/x"
    assert host.path(host.data / "x") == tmp_path / "elsewhere/x"


def test_a_write_is_whole_and_leaves_nothing_beside(host: Host) -> None:
    path = host.data / "deep/file"
    host.do(Write(str(path), "one", 0o600))
    host.do(Write(str(path), "two", 0o600))
    assert path.read_text() == "two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [item.name for item in path.parent.iterdir()] == ["file"]


def test_link_and_remove(host: Host) -> None:
    link = host.data / "current"
    for target in ("a", "b"):
        host.do(Link(str(link), target))
        assert os.readlink(link) == target
    host.do(Remove(str(link)))
    host.do(Remove(str(link)))
    assert not link.is_symlink()


def test_unpack_takes_only_what_lies_below_the_prefix(host: Host, tmp_path: Path) -> None:
    archive = tmp_path / "a.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        for name in ("top/in/file", "top/other"):
            member = tarfile.TarInfo(name)
            member.size = 2
            tar.addfile(member, io.BytesIO(b"hi"))
    host.do(Unpack(str(archive), str(host.data / "out"), "top/in"))
    assert [path.name for path in (host.data / "out").rglob("*")] == ["file"]
    with pytest.raises(OrinError, match="nothing below nowhere"):
        host.do(Unpack(str(archive), str(host.data / "out2"), "nowhere"))
    assert not (host.data / "out2").exists()


def test_unpack_a_zip_and_refuse_what_is_torn(host: Host, tmp_path: Path) -> None:
    archive = tmp_path / "a.whl"
    with zipfile.ZipFile(archive, "w") as source:
        source.writestr("pkg/file", "hi")
    host.do(Unpack(str(archive), str(host.data / "out"), "pkg"))
    assert (host.data / "out/file").read_text() == "hi"
    torn = tmp_path / "torn.tar.gz"
    torn.write_bytes(b"\x1f\x8b\x08\x00garbage")
    with pytest.raises(OrinError, match="not a whole archive"):
        host.do(Unpack(str(torn), str(host.data / "torn")))


def test_an_archive_cannot_write_outside_its_folder(host: Host, tmp_path: Path) -> None:
    archive = tmp_path / "evil.tar"
    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo("../../evil")
        member.size = 2
        tar.addfile(member, io.BytesIO(b"hi"))
    with pytest.raises(OrinError):
        host.do(Unpack(str(archive), str(host.data / "deep/out")))
    assert not (host.data.parent / "evil").exists()
    assert not (host.data / "evil").exists()


def test_a_command_leaves_its_words_in_the_log_and_its_end_in_the_error(host: Host) -> None:
    log = host.data / "log"
    with pytest.raises(CommandFailed) as failure:
        host.do(Run(("sh", "-c", "for i in $(seq 30); do echo line $i; done; exit 3"), log=str(log)))
    assert failure.value.returncode == 3
    assert failure.value.tail[-1] == "line 30"
    assert len(failure.value.tail) == commands.TAIL_LINES
    assert "line 1\n" in log.read_text()


def test_output_appears_only_when_the_command_succeeds(host: Host) -> None:
    output = host.data / "out"
    with pytest.raises(CommandFailed):
        host.do(Run(("sh", "-c", "echo half; exit 1"), output=str(output)))
    assert not output.exists()
    host.do(Run(("echo", "whole"), output=str(output)))
    assert output.read_text() == "whole\n"


def test_an_absent_program_is_named(host: Host) -> None:
    with pytest.raises(CommandFailed, match="no-such-program is not on this machine"):
        host.do(Run(("no-such-program",)))
    assert host.ask("no-such-program") is None
    assert host.ask("false") is None
    assert host.ask("echo", " hi ") == "hi"
    assert host.ask("sleep", "5", timeout_s=0.1) is None


def test_an_interrupt_ends_the_whole_process_group(host: Host, tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"

    def interrupt(line: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        commands.follow(
            ("sh", "-c", f"sleep 60 & echo $! > {pid_file}; echo ready; wait"), host.environ, on_line=interrupt
        )
    child = Path(f"/proc/{pid_file.read_text().strip()}/stat")
    deadline = time.monotonic() + 5  # it is killed, but on a busy machine not yet gone
    with contextlib.suppress(OSError):
        while "Z" not in child.read_text().split()[2]:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_the_second_holder_of_the_lock_names_the_first(host: Host) -> None:
    says = rf"orin-deploy up --profile host.*process {os.getpid()}"
    with host.lock("orin-deploy up --profile host"), pytest.raises(OrinError, match=says):
        host.lock("orin-deploy down").__enter__()
    with host.lock("orin-deploy down"):
        pass


def test_free_space_is_that_of_the_first_folder_that_exists(host: Host) -> None:
    free = host.free_bytes(host.data / "a/b/c")
    assert free is not None
    assert free > 0


def test_a_full_disk_is_named_and_does_not_keep_the_lock_from_being_held(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))  # Python ignores the signal; writes fail
    try:
        with files.lock(tmp_path / "lock", {"command": "down"}), pytest.raises(OSError, match="large") as caught:
            files.write(tmp_path / "a", "text")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.filename == str(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]
