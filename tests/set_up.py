"""Install the programs that tests run: `python -m tests.set_up servers`, `chromium` or `power`.

With apt, as root or by a sudo that asks nothing. Where there is no apt, or no right to use it, nothing is
installed, and the tests that need a program say so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PACKAGES = {
    "servers": {
        "git": ["git"],
        "openssh-client": ["ssh"],
        "openssh-server": ["sshd"],
        "lighttpd": ["lighttpd"],
        "gitolite3": ["gitolite"],
    },
    "chromium": {"chromium": ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"]},
    "power": {"xfsprogs": ["mkfs.xfs"], "e2fsprogs": ["mkfs.ext4"]},
}
"""By what is asked for: packages of Debian, and the programs of which one has to be there."""


def main(what: str) -> None:
    """Install what is missing."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin"
    packages = [
        package
        for package, programs in PACKAGES[what].items()
        if not any(shutil.which(program, path=path) for program in programs)
    ]
    if packages and shutil.which("apt-get"):
        install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
        if not _run_as_root(install) and _run_as_root(["apt-get", "update", "-qq"]):
            _run_as_root(install)


def _run_as_root(command: list[str]) -> bool:
    command = ["env", "DEBIAN_FRONTEND=noninteractive", *command]
    if os.geteuid() != 0:
        command = ["sudo", "-n", *command]
    return shutil.which(command[0]) is not None and not subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    main(sys.argv[1])
