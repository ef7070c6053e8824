"""What commands see of the system where it is the host's own: /usr, the links into it, and a made-up /etc."""

from __future__ import annotations

import os

HOME = "/tmp/home"
AGENT = 1000  # user and group that commands run as where we may choose

_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")


def usr_links() -> dict[str, str]:
    """The host's links from / into /usr: path -> what it is a link to."""
    return {f"/{name}": os.readlink(f"/{name}") for name in _TOP if os.path.islink(f"/{name}")}


def system_folders() -> list[str]:
    """The host's folders with programs: /usr, and what lies beside it where /usr was never merged."""
    beside = (f"/{name}" for name in _TOP)
    return ["/usr", *(path for path in beside if os.path.isdir(path) and not os.path.islink(path))]


def etc_files(user: int = AGENT, group: int = AGENT) -> dict[str, str]:
    """What programs expect in /etc, nothing of it the host's: name -> content."""
    return {
        "passwd": (
            f"root:x:0:0:root:/root:/bin/bash\nagent:x:{user}:{group}:agent:{HOME}:/bin/bash\n"
            "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
        ),
        "group": f"root:x:0:\nagent:x:{group}:\nnogroup:x:65534:\n",
        "hosts": "127.0.0.1 localhost sandbox\n::1 localhost\n",
        "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
        "resolv.conf": "",
    }
