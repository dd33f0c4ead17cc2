"""The ways out of the host: network interfaces with their MTU and speed, and the ports that speak InfiniBand verbs.

Interfaces are seen per network namespace, so they are read where the server is. Ends of containers' cables and Docker's
own bridges come and go with their containers: they are left out. The kernel tells no MTU of a verbs port: over Ethernet
it follows that of the interface which the port names.
"""

from __future__ import annotations

import os
import re
from typing import Dict, List, Optional

from probes.reading import Json, attempt, is_unread, names_in, read_text, unread

_MOST_INTERFACES = 256
_PASSING = re.compile(r"(veth|cali|lxc|azv|tap|vnet|ifb|dummy|tunl|sit|gre|erspan|ip_vti|ip6|br-[0-9a-f]{12}$)")
_COUNTERS = ("link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "port_xmit_discards")
_PCI = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$")


def word(place: str, name: str) -> Optional[str]:
    """One attribute of a device; None when it has none or it is blank."""
    try:
        return read_text(os.path.join(place, name)).strip() or None
    except OSError:
        return None


def number(text: Optional[str]) -> Optional[int]:
    """A whole number; None for anything else."""
    try:
        return int(text or "")
    except ValueError:
        return None


def interfaces_of(pid: Optional[int]) -> Json:
    """The interfaces that a process sees, or why they cannot be read; ours for None.

    A /sys tells of the namespace in which it was mounted, which need not be that of whoever looks.
    """
    root, seen = "/", "self"
    if pid is not None:
        there = attempt(lambda: os.readlink(f"/proc/{pid}/ns/net"))  # unread where it is another user's
        if not is_unread(there) and there != os.readlink("/proc/self/ns/net"):
            root, seen = f"/proc/{pid}/root", str(pid)
    return attempt(lambda: _checked(root, seen))


def _checked(root: str, seen: str) -> Json:
    lines = read_text(f"/proc/{seen}/net/dev", 1 << 20).splitlines()[2:]
    named = [line.partition(":")[0].strip() for line in lines]
    told = [name for name in names_in(os.path.join(root, "sys/class/net")) if name != "bonding_masters"]
    if {name for name in named if not _PASSING.match(name)} != {name for name in told if not _PASSING.match(name)}:
        return unread("/sys is of another network namespace than the server; capture from inside its container")
    return interfaces(root)


def interfaces(root: str) -> Dict[str, Json]:
    """The interfaces that the /sys below `root` tells of."""
    place = os.path.join(root, "sys/class/net")
    found: Dict[str, Json] = {}
    for name in names_in(place):
        here = os.path.join(place, name)
        device = os.path.join(here, "device")
        real = os.path.exists(device)
        mtu = number(word(here, "mtu"))
        if mtu is None or not (real or not _PASSING.match(name)) or len(found) == _MOST_INTERFACES:
            continue
        speed = number(word(here, "speed"))  # -1 or an error where there is no link, or none that has a speed
        address = os.path.basename(os.path.realpath(device)) if real else ""
        master = os.path.join(here, "master")
        found[name] = {
            "mtu": mtu,
            "speed_mbps": speed if speed is not None and speed > 0 else None,
            "state": word(here, "operstate"),
            "device": address if _PCI.match(address) else None,
            "master": os.path.basename(os.path.realpath(master)) if os.path.exists(master) else None,
        }
    return found


def infiniband(root: str) -> Dict[str, Json]:
    """`CARD port NUMBER` -> what the card says of that port."""
    place = os.path.join(root, "sys/class/infiniband")
    found: Dict[str, Json] = {}
    for card in names_in(place):
        here = os.path.join(place, card)
        ports = os.path.join(here, "ports")
        for port in names_in(ports):
            at = os.path.join(ports, port)
            found[f"{card} port {port}"] = {
                "rate": word(at, "rate"),
                "state": word(at, "state"),
                "link": word(at, "phys_state"),
                "errors": _errors(os.path.join(at, "counters")),
                "link_layer": word(at, "link_layer"),
                "firmware": word(here, "fw_ver"),
                "interfaces": _interfaces_of_port(here, port),
            }
    return found


def _errors(counters: str) -> Dict[str, int]:
    """Those counters of a port that are not zero on a bad cable or a full network."""
    found = {name: number(word(counters, name)) for name in _COUNTERS}
    return {name: count for name, count in found.items() if count}


def _interfaces_of_port(card: str, port: str) -> List[str]:
    """The interfaces of one port; the kernel counts ports of a card from 0 there."""
    nets = os.path.join(card, "device/net")
    return [name for name in names_in(nets) if word(os.path.join(nets, name), "dev_port") in {None, str(int(port) - 1)}]
