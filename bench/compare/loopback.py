"""A plain copy over a loopback TCP connection: what the machine can do at best."""

import socket
import threading
import time

CHUNK = 1 << 18


def seconds_to_copy(data: bytes) -> float:
    """From the first byte sent to the last one received, and one byte back to say so."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        receiver = threading.Thread(target=_receive, args=(server, len(data)))
        receiver.start()
        with socket.create_connection(server.getsockname()) as connection:
            started = time.perf_counter()
            connection.sendall(data)
            connection.recv(1)
            took = time.perf_counter() - started
        receiver.join()
    return took


def _receive(server: socket.socket, size: int) -> None:
    connection, _ = server.accept()
    with connection:
        target = memoryview(bytearray(size))
        received = 0
        while received < size:
            count = connection.recv_into(target[received : received + CHUNK])
            if not count:
                return
            received += count
        connection.sendall(b".")
