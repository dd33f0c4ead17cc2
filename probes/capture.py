"""Runs the probes, each under a deadline of its own, and hands over every section as soon as it is there."""

from __future__ import annotations

import os
import threading
import time
from typing import Any, Callable, Dict, List

from probes import caches, gpu, host, limits, log, models, nccl, packages, server, startup, topology, tree
from probes.reading import Json, is_unread
from probes.secrets import Keeper

Context = Dict[str, Any]
"""What probes know of each other: `ask` (the request), `keeper` (of secrets), `emit` (for objects), `server` (its
section, read first) and, where there is a server, `serving`: its launcher as it really is, secrets included."""

DEADLINE_S = 20.0

CANCELLED = threading.Event()
"""Nobody waits for sections any more."""

PROBES: Dict[str, Callable[[Context], Json]] = {
    "server": server.read,
    "packages": packages.read,
    "startup": startup.read,
    "trees": tree.read,
    "gpu": gpu.read,
    "topology": topology.read,
    "host": host.read,
    "limits": limits.read,
    "nccl": nccl.read,
    "caches": caches.read,
    "models": models.read,
    "log": log.read,
}


def capture(ask: Json, emit: Callable[[str, Json], None]) -> Json:
    """Read the sections that `ask` names (all by default).

    Args:
        ask: `sections` (names or absent), `deadline_s` per probe, `secret_key` (hex), and what single probes want:
            `pid`, `port`, `python`, `verify`, `keep`.
        emit: called with `("section", {"name": ..., "section": {...}})` for every section.
    """
    wanted = ask.get("sections") or list(PROBES)
    deadline_s = float(ask.get("deadline_s") or DEADLINE_S)
    context: Context = {"ask": ask, "keeper": Keeper(bytes.fromhex(ask.get("secret_key") or "00")), "emit": emit}
    # The others need to know which server it is: its interpreter, its working directory, its import path.
    first = _section("server", context, deadline_s)
    context["server"] = first
    if "server" in wanted:
        emit("section", {"name": "server", "section": first})
    workers: List[threading.Thread] = []
    for name in wanted:
        if name != "server" and name in PROBES:

            def work(name: str = name) -> None:
                emit("section", {"name": name, "section": _section(name, context, deadline_s)})

            workers.append(threading.Thread(target=work, daemon=True))
            workers[-1].start()
    for worker in workers:
        worker.join()
    return {"sections": len(workers) + 1}


def _section(name: str, context: Context, deadline_s: float) -> Json:
    """One section; a probe past its deadline is abandoned and the section says so."""
    answer: Dict[str, Json] = {}
    began = time.monotonic()

    def work() -> None:
        try:
            # Niceness is a thread's own on Linux: trials that this program runs later are not slowed.
            own = threading.get_native_id()
            os.setpriority(os.PRIO_PROCESS, own, max(10, os.getpriority(os.PRIO_PROCESS, own)))
            answer["section"] = PROBES[name](context)
        except Exception as error:
            answer["section"] = {"status": "failed", "reason": f"{type(error).__name__}: {error}"}

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    while worker.is_alive() and time.monotonic() - began < deadline_s and not CANCELLED.is_set():
        worker.join(0.1)
    section = answer.get("section") or {"status": "failed", "reason": f"did not finish within {deadline_s:g} s"}
    if "status" not in section:
        section["status"] = "partial" if _has_unread(section) else "ok"
    section["seconds"] = round(time.monotonic() - began, 4)
    return section


def _has_unread(value: Json) -> bool:
    if is_unread(value):
        return True
    if isinstance(value, dict):
        return any(_has_unread(child) for child in value.values())
    return False
