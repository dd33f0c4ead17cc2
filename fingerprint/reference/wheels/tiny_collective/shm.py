"""Shared memory without a name: rank 0 makes it, rank 1 is handed its descriptor.

Each rank owns a line with a ticket number and two slots that it uses in turn. It writes a slot, then its ticket. A rank
that sees the ticket of round n + 1 knows that the other has read everything of round n, so two slots are enough and
nobody has to say "read".
"""

import mmap
import os
import threading
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

SLOT_BYTES = 65536
_LINE_BYTES = 128
_SPINS_BEFORE_YIELD = 2000


class SharedMemoryTransport:
    """One rank's end of the shared memory."""

    def __init__(self, rank: int, bootstrap: Connection) -> None:
        size = 2 * (_LINE_BYTES + 2 * SLOT_BYTES)
        if rank == 0:
            descriptor = os.memfd_create("tccl")
            os.ftruncate(descriptor, size)
            send_handle(bootstrap, descriptor, bootstrap.recv())
        else:
            bootstrap.send(os.getpid())
            descriptor = recv_handle(bootstrap)
        memory = memoryview(mmap.mmap(descriptor, size))
        os.close(descriptor)
        self._tickets = memory[: 2 * _LINE_BYTES].cast("Q")
        self._mine, self._theirs = (line * _LINE_BYTES // 8 for line in (rank, 1 - rank))
        slots = np.frombuffer(memory, dtype=np.float64, offset=2 * _LINE_BYTES).reshape(2, 2, SLOT_BYTES // 8)
        self._my_slots, self._their_slots = slots[rank], slots[1 - rank]
        self._round = 0
        # A lock taken and left is a memory barrier: the slot is seen before the ticket on every processor.
        self._barrier = threading.Lock()

    def exchange(self, array: Array) -> Array:
        """Give `array` to the other rank and return its array of the same shape."""
        sent = array.reshape(-1)
        received = np.empty_like(sent)
        step = SLOT_BYTES // 8
        for begin in range(0, sent.size, step):
            part = sent[begin : begin + step]
            self._round += 1
            slot = self._round % 2
            self._my_slots[slot, : part.size] = part
            with self._barrier:
                self._tickets[self._mine] = self._round
            self._wait()
            received[begin : begin + step] = self._their_slots[slot, : part.size]
        return received.reshape(array.shape)

    def _wait(self) -> None:
        tickets, theirs, wanted = self._tickets, self._theirs, self._round
        spins = 0
        while tickets[theirs] < wanted:
            spins += 1
            if spins > _SPINS_BEFORE_YIELD:
                os.sched_yield()
        with self._barrier:
            pass
