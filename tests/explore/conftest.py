"""A server of the live page in a process of its own, in an empty home, with the entries of `own_entries`."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytest.importorskip("starlette")

OWN = Path(__file__).with_name("own_entries.py")


@dataclass
class Server:
    """A running server and the requests of a page."""

    home: Path
    options: tuple[str, ...] = ()
    process: subprocess.Popen = field(init=False)
    address: str = field(init=False)

    def start(self, *more: str) -> "Server":
        home = {name: str(self.home / name.lower()) for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME")}
        home["TMPDIR"] = str(self.home)
        words = ["explore", *self.options, *more, "--results", str(self.home / "results"), "--entry", str(OWN)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "saddlescope", *words],
            stdout=subprocess.PIPE, text=True, start_new_session=True, env={**os.environ, **home},
        )  # fmt: skip
        assert self.process.stdout is not None
        (self.address,) = re.findall(r"http://\S+", self.process.stdout.readline())
        return self

    def stop(self, how: int = signal.SIGINT) -> int:
        if self.process.poll() is None:
            self.process.send_signal(how)
        status = self.process.wait(20)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return status

    @property
    def port(self) -> int:
        return int(self.address.split("/")[2].partition(":")[2])

    @property
    def token(self) -> str:
        return self.address.split("/")[3]

    def ask(self, path: str, *, method: str = "GET", body: object = None, token: str | None = None, **headers: str):
        """Return the status, the headers and the text of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else None
        sent = {"Content-Type": "application/json"} if content is not None else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, f"/{self.token if token is None else token}/{path}", content, sent)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, dict(answer.getheaders()), text

    def messages(
        self, task: str = "run", *, entry: str = "own/timed", client: str = "test", size: str = "default", **settings
    ):
        """Return the messages of a run."""
        body = {"client": client, "entry": entry, "size": size, "settings": settings}
        _, _, text = self.ask(task, method="POST", body=body)
        return [json.loads(line) for line in text.splitlines()]

    def workers(self) -> list[int]:
        """Return the worker processes."""
        listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(self.process.pid)], capture_output=True, text=True)
        return [int(word) for word in listed.stdout.split()]


@pytest.fixture(scope="module")
def make_server(tmp_path_factory):
    """Return a function that starts a server with options; the entry `own/timed` is warm, not the toys."""
    made = []

    def make(*options, entry=("own/timed",)):
        server = Server(tmp_path_factory.mktemp("home"), (*entry, *options)).start()
        made.append(server)
        return server

    yield make
    for server in made:
        server.stop(signal.SIGKILL)


@pytest.fixture(scope="module")
def server(make_server):
    return make_server()
