"""Addresses of schedulers: refused before any work unless a scheduler answers."""

import contextlib
import socket
import threading

import pytest

from saddlescope._shared.errors import InputError

_JUNK = ["nonsense", "http://127.0.0.1", "", "tcp://127.0.0.1", "x://y:1", "tcp://host name:1", "tcp://127.0.0.1:99999"]
_JUNK += ["tcp://127.0.0.1:８７８６", "/etc/passwd", "tcp://a:1:2"]


_SILENT = ["tcp://127.0.0.1:9", "localhost:9", "tcp://[::1]:9", "tcp://there.is.no.such.host.invalid:8786"]


@pytest.mark.parametrize("address", [*_JUNK, *_SILENT])
def test_an_address_that_nobody_answers_is_refused_before_any_work(swept, tmp_path, address):
    with pytest.raises(InputError, match="must be the address of a running Dask scheduler") as refused:
        swept("dim=1,2", scheduler=address)
    assert str(refused.value).endswith("none answers there.")
    assert not (tmp_path / "out").exists()


def test_an_address_at_which_something_else_answers_is_refused(swept):
    """A server that never speaks, and one that speaks another protocol."""
    for greeting in (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"):
        with socket.create_server(("127.0.0.1", 0)) as server:
            heard = threading.Thread(target=_answer, args=(server, greeting), daemon=True)
            heard.start()
            address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
            with pytest.raises(InputError, match="none answers there"):
                swept("dim=1,2", scheduler=address)
        heard.join(timeout=30)


def _answer(server, greeting):
    """Accept the connections of the check and greet each."""
    kept = []
    with contextlib.suppress(OSError):
        for _ in range(2):
            kept.append(server.accept()[0])
            with contextlib.suppress(OSError):
                kept[-1].sendall(greeting)
        kept[-1].settimeout(20)
        while kept[-1].recv(1 << 12):
            pass
    for connection in kept:
        connection.close()
