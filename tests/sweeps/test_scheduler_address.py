"""Addresses of schedulers: refused before any work unless a scheduler answers."""

import socketserver
import threading

import pytest

from saddlescope._shared.errors import InputError
from saddlescope.sweeps.scheduler_address import require_scheduler

REFUSED = "must be the address of a running Dask scheduler.*: none answers there[.]$"
JUNK = ["nonsense", "http://127.0.0.1", "", "tcp://127.0.0.1", "x://y:1", "tcp://host name:1", "tcp://127.0.0.1:99999"]
JUNK += ["tcp://127.0.0.1:８７８６", "/etc/passwd", "tcp://a:1:2"]
SILENT = ["tcp://127.0.0.1:9", "localhost:9", "tcp://[::1]:9", "tcp://there.is.no.such.host.invalid:8786"]


@pytest.mark.parametrize("address", [*JUNK, *SILENT])
def test_an_address_that_nobody_answers_is_refused(address):
    with pytest.raises(InputError, match=REFUSED):
        require_scheduler(address, reached=0.2)


def test_it_is_refused_before_any_work(swept, tmp_path):
    with pytest.raises(InputError, match=REFUSED):
        swept("dim=1,2", scheduler="tcp://127.0.0.1:99999")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("greeting", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n"], ids=["silence", "another protocol"])
def test_an_address_at_which_something_else_answers_is_refused(greeting):
    class Greeter(socketserver.BaseRequestHandler):
        def handle(self):
            self.request.sendall(greeting)
            while self.request.recv(1 << 12):  # and says no more
                pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Greeter) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        with pytest.raises(InputError, match=REFUSED):
            require_scheduler(f"tcp://127.0.0.1:{server.server_address[1]}", reached=0.5, answered=0.5)
        server.shutdown()
