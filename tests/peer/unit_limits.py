"""Runs a command under the limits that a systemd unit sets, as far as that works without systemd: its filter of system calls, and what it shows of /proc.

    python tests/peer/unit_limits.py UNIT_FILE COMMAND...

The filter is the unit's own, with the sets of calls as `systemd-analyze` lists them.
"""

import ctypes
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
from pathlib import Path

NUMBERS = Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
_LOAD, _EQUALS, _RETURN = 0x20, 0x15, 0x06  # of a BPF program
_ALLOW, _KILL, _FAIL_EPERM = 0x7FFF0000, 0x80000000, 0x00050001
_NO_NEW_PRIVILEGES, _SECCOMP, _FILTER = 38, 22, 2  # of prctl


def why_not() -> str:
    """Return why this cannot be done on this machine, or nothing."""
    if shutil.which("systemd-analyze") is None:
        return "there is no systemd-analyze to list system calls"
    if platform.machine() != "x86_64" or not NUMBERS.exists():
        return "the numbers of system calls are not known here"
    return ""


def command_under(unit: Path, *command: str) -> list[str]:
    """Return the command that runs another one under a unit's limits. What /proc shows takes root."""
    limited = [sys.executable, __file__, str(unit), *command]
    if os.geteuid() != 0:
        return limited
    shown = [f"hidepid={value}" for value in _values(unit, "ProtectProc")]
    shown += [f"subset={value}" for value in _values(unit, "ProcSubset")]
    mount = f'mount -t proc -o {",".join(shown) or "rw"} proc /proc && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", mount, "sh", *limited]


def allowed_calls(unit: Path) -> set[str]:
    """Return the system calls that a unit allows."""
    allowed: set[str] = set()
    for value in _values(unit, "SystemCallFilter"):
        names = {name for word in value.removeprefix("~").split() for name in _expand(word)}
        allowed = allowed - names if value.startswith("~") else allowed | names
    return allowed


def _values(unit: Path, key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", unit.read_text(), re.MULTILINE)


def _expand(name: str) -> set[str]:
    if not name.startswith("@"):
        return {name}
    listed = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    words = [line.strip() for line in listed.stdout.splitlines()[1:]]
    return {call for word in words if word and not word.startswith("#") for call in _expand(word)}


def _restrict(allowed: set[str], otherwise: int) -> None:
    numbers = dict(re.findall(r"#define __NR_(\w+) (\d+)", NUMBERS.read_text()))
    program = [(_LOAD, 0, 0, 0)]
    for name in sorted(allowed & numbers.keys()):
        program += [(_EQUALS, 0, 1, int(numbers[name])), (_RETURN, 0, 0, _ALLOW)]
    program.append((_RETURN, 0, 0, otherwise))
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *each) for each in program))
    about = ctypes.create_string_buffer(struct.pack("<H6xQ", len(program), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    zero = ctypes.c_ulong(0)
    if libc.prctl(_NO_NEW_PRIVILEGES, ctypes.c_ulong(1), zero, zero, zero) or libc.prctl(
        _SECCOMP, ctypes.c_ulong(_FILTER), about, zero, zero
    ):
        raise OSError(ctypes.get_errno(), "the filter was refused")


def main() -> None:
    """Restrict this process and become the command."""
    unit, command = Path(sys.argv[1]), sys.argv[2:]
    # As root, SQLite gives its own files to itself; the unit's user is not root.
    allowed = allowed_calls(unit) | ({"fchown"} if os.geteuid() == 0 else set())
    _restrict(allowed, _FAIL_EPERM if "EPERM" in _values(unit, "SystemCallErrorNumber") else _KILL)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
