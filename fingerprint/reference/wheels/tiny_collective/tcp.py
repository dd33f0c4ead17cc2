"""A TCP connection over the loopback interface: rank 0 listens, rank 1 connects."""

import socket
from multiprocessing.connection import Connection

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

CHUNK_BYTES = 32768  # less than a socket buffer, so that both ranks can send before either reads


class TcpTransport:
    """One rank's end of the connection."""

    def __init__(self, rank: int, bootstrap: Connection) -> None:
        if rank == 0:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                bootstrap.send(listener.getsockname())
                self._socket, _ = listener.accept()
        else:
            self._socket = socket.create_connection(bootstrap.recv())
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def exchange(self, array: Array) -> Array:
        """Give `array` to the other rank and return its array of the same shape."""
        sent = np.ascontiguousarray(array).data.cast("B")
        received = np.empty(array.shape)
        into = received.data.cast("B")
        for begin in range(0, len(sent), CHUNK_BYTES):
            self._socket.sendall(sent[begin : begin + CHUNK_BYTES])
            part = into[begin : begin + CHUNK_BYTES]
            while part:
                count = self._socket.recv_into(part)
                if count == 0:
                    raise ConnectionError("the other rank has closed its connection")
                part = part[count:]
        return received
