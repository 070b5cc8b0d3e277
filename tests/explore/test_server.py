"""The server of the live page, asked without a browser: who may ask, what is refused, runs, stops, kills, saving."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr

from saddlescope.cli import main
from saddlescope.explore.access import persistent_token
from saddlescope.explore.live_runs import LiveRuns
from saddlescope.explore.server import Explorer, make_app
from saddlescope.explore.worker import Folders
from saddlescope.reproduction import Reproduction
from saddlescope.reproduction.formatting import position
from waiting import ended, until

OWN = str(Path(__file__).with_name("own_entries.py"))


def test_it_listens_on_this_machine_alone(server):
    listed = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    places = {line.split()[1] for line in listed.splitlines() if f":{server.port:04X}" in line.split()[1]}
    assert {place.partition(":")[0] for place in places} == {"0100007F"}


def test_the_server_itself_loads_no_array_framework(server):
    server.messages()
    loaded = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "jaxlib" not in loaded
    assert "libtorch" not in loaded


@pytest.mark.parametrize("path", ["", "entry/toys/scale", "assets/explore.js", "alive"])
def test_only_the_token_opens_a_page(server, path):
    status, headers, _ = server.ask(path)
    assert status == 200
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert headers["referrer-policy"] == "no-referrer"
    for token in ("x", "", server.token[:-1], server.token + "0", server.token.upper()):
        status, _, text = server.ask(path, token=token)
        assert status == 403
        assert server.token not in text


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8642", "169.254.169.254", "127.0.0.1.evil.example", "127.0.0.1:1@evil.example", ""],
)
def test_another_name_of_this_machine_is_refused(server, host):
    assert server.ask("", Host=host)[0] == 403


def test_a_tunnel_may_have_another_port(server):
    assert server.ask("", Host="localhost:1234", Origin="http://localhost:1234")[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"])
def test_another_page_is_refused(server, origin):
    body = {"client": "c", "entry": "own/timed", "size": "default"}
    assert server.ask("run", method="POST", body=body, Origin=origin)[0] == 403
    assert server.ask("alive", Origin=origin)[0] == 403


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "JSON"),
        (b"[]", 400, "client, entry and size"),
        ({"client": "c", "entry": "own/timed"}, 400, "client, entry and size"),
        ({"client": "c", "entry": "own/timed", "size": "default", "settings": ["x"]}, 400, "settings"),
        ({"client": "c", "entry": "own/timed", "size": "default", "settings": {"seconds": 3}}, 400, "settings"),
        ({"client": "c", "entry": "own/timer", "size": "default"}, 400, "did you mean own/timed"),
        ({"client": "c", "entry": "../../etc/passwd", "size": "default"}, 400, "There is no entry"),
        ({"client": "c", "entry": "own/timed", "size": "huge"}, 400, "no size 'huge'"),
        ({"client": "c", "entry": "own/timed", "size": "default", "settings": {"level": "2"}}, 400, "level must be"),
        ({"client": "c", "entry": "own/timed", "size": "default", "settings": {"points": "999"}}, 400, "at most 80"),
        ({"client": "", "entry": "own/timed", "size": "default"}, 400, "client must have 1 to 100 characters"),
        (b"[" * 60_000, 400, "JSON"),
        (b'{"a":' * 12_000, 400, "JSON"),
        (b" " * 100_000, 413, "at most"),
    ],
)
def test_a_bad_request_is_refused_in_one_sentence(server, body, status, words):
    found, _, text = server.ask("run", method="POST", body=body)
    assert found == status
    assert words in json.loads(text)["refused"]


def test_a_form_of_another_page_could_not_run_anything(server):
    found = server.ask("run", method="POST", body=b"{}", Content_Type="text/plain")
    assert found[0] == 415
    assert server.ask("run")[0] == 405


def test_pages_that_do_not_exist_say_so(server):
    status, _, text = server.ask("entry/own/timer")
    assert status == 400
    assert "did you mean own/timed" in text
    assert server.ask("entry/own/timed?size=huge")[0] == 400
    assert server.ask("assets/..%2fserver.py")[0] == 404
    assert server.ask("assets/server.py")[0] == 404
    assert server.ask("nothing")[0] == 404


def test_a_run_reports_and_answers(server):
    *progress, last = server.messages(seconds="0.4", level="0.7")
    fractions = [message["progress"][0] for message in progress]
    assert fractions == sorted(fractions)
    assert fractions[-1] > 0.5
    done = last["done"]
    (figure,) = done["figures"]
    assert figure["panels"][0]["data"][0]["y"][-1] == 0.7
    why = "The bounds were set for the default parameters, and this run has seconds=0.4, level=0.7."
    meaning = f"The curve ends above a half: inside. {why}"
    assert done["signs"] == [{"claim": "high", "outcome": "inside", "meaning": meaning, "sign": "✓"}]
    assert f"Not judged. {why}" in done["claims"]
    assert "&lt;img src=x" in done["claims"]
    assert "<img" not in done["claims"]
    assert done["command"] == f"saddlescope run own/timed --entry {OWN} --set seconds=0.4 --set level=0.7"
    assert f"load_entries({str(OWN)!r})" in done["python"]


def test_an_answer_is_remembered_whatever_the_spelling(server):
    first = server.messages(level="0.25")
    again = server.messages(level="2.5e-1", points="20")
    assert first[-1] == again[-1]
    assert len(again) == 1


def test_other_output_is_no_message(server):
    assert "done" in server.messages(prints="true")[-1]


def test_a_defect_is_reported_and_the_worker_goes_on(server):
    before = server.messages(level="0.11")[-1]["done"]["figures"][0]["caption"]
    last = server.messages(fails="true")[-1]
    assert re.fullmatch(
        r".*own_entries.py, line \d+: RuntimeError: a defect[.] Mend the entry own/timed[.]", last["refused"]
    )
    assert server.messages(level="0.12")[-1]["done"]["figures"][0]["caption"] == before  # the same process


def test_a_worker_that_dies_is_replaced(server):
    assert "ended early (exit status -9)" in server.messages(dies="true")[-1]["failed"]
    assert "done" in server.messages(level="0.13")[-1]


def test_every_origin_of_a_request_counts(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stream:
        origins = f"Origin: http://127.0.0.1:{server.port}\r\nOrigin: http://evil.example\r\n"
        stream.sendall(f"GET /{server.token}/alive HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n{origins}\r\n".encode())
        assert b" 403 " in stream.recv(1000).splitlines()[0]


def test_a_redirect_keeps_the_token(server):
    status, headers, _ = server.ask("alive/")
    assert (status, headers["location"]) == (307, f"{server.address.split('entry/')[0]}alive")
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    connection.request("GET", f"/{server.token}")
    assert connection.getresponse().getheader("location") == f"/{server.token}/"
    connection.close()


def open_run(server, **settings):
    """Begin a run and return its connection after the first message."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    body = {"client": settings.pop("client", "open"), "entry": "own/timed", "size": "default", "settings": settings}
    headers = {"Content-Type": "application/json"}
    connection.request("POST", f"/{server.token}/run", json.dumps(body), headers)
    answer = connection.getresponse()
    assert b"progress" in answer.readline()
    return connection, answer


def test_connections_without_a_request_cannot_stop_it_and_are_closed_and_a_run_may_take_longer(server):
    running, answer = open_run(server, client="long", seconds="7")
    host = f"Host: 127.0.0.1:{server.port}\r\n".encode()
    begun = b"GET /x HTTP/1.1\r\n" + host
    refused = b"POST /x/run HTTP/1.1\r\n" + host + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n"
    admitted = refused.replace(b"/x/", f"/{server.token}/".encode())  # their bodies never end
    answered = f"GET /{server.token}/alive HTTP/1.1\r\n".encode() + host + b"\r\n"
    streams = []
    for sent in [begun] * 300 + [refused, admitted, answered, b""] * 20:
        streams.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
        streams[-1].sendall(sent)
    assert server.ask("alive")[0] == 200
    end = time.monotonic() + 6
    while time.monotonic() < end:  # a byte now and then does not keep one open
        for stream in streams:
            with contextlib.suppress(OSError):
                stream.sendall(b"x")
        time.sleep(0.2)
    assert server.ask("alive")[0] == 200
    for stream in streams:
        with stream, contextlib.suppress(ConnectionError):
            while stream.recv(1000):  # until it is closed
                pass
    assert "done" in json.loads(answer.read().splitlines()[-1])
    running.close()


def test_the_browser_is_not_given_the_token_a_run_has_a_limit_and_workers_end_with_a_server_that_is_killed(
    make_server, tmp_path, monkeypatch
):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/given.new; mv {tmp_path}/given.new {tmp_path}/given\n')
    browser.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{browser} %s")
    server = make_server("--open", "--limit", "2")
    until((tmp_path / "given").exists)
    given = (tmp_path / "given").read_text().strip()
    assert server.token not in given
    page = Path(given.removeprefix("file://"))
    assert f'url={server.address}"' in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
    assert "stopped after 2 s" in server.messages(seconds="600")[-1]["failed"]
    until(lambda: "done" in server.messages(level="0.34")[-1])  # the first run of a process is slow on a busy machine
    workers = server.workers()
    server.stop(signal.SIGKILL)
    until(lambda: all(map(ended, workers)))


def test_a_page_has_one_run_at_a_time(server):
    connection, answer = open_run(server, client="page", seconds="600")
    began = time.monotonic()
    assert "done" in server.messages(client="page", level="0.31")[-1]
    assert time.monotonic() - began < 60
    assert json.loads(answer.read().splitlines()[-1]) == {"stopped": True}
    connection.close()


@pytest.fixture(scope="module")
def single(make_server):
    """A server with one process, which listens at another port than the first."""
    return make_server("--processes", "1")


def test_the_runs_of_a_page_that_is_closed_stop_or_are_killed(single):
    single.messages()
    (worker,) = single.workers()
    for settings, level in (({}, "0.32"), ({"silent": "true"}, "0.33")):
        connection, answer = open_run(single, seconds="600", **settings)
        answer.close()
        connection.close()
        assert "done" in single.messages(client="other", level=level)[-1]
        assert (single.workers() == [worker]) == (not settings)  # stopped, and still warm, or killed


def test_idle_workers_that_are_killed_are_replaced(single):
    single.messages()
    workers = single.workers()
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    until(lambda: not set(workers) & set(single.workers()))
    assert "done" in single.messages(level="0.14")[-1]


def test_two_pages_run_side_by_side(server):
    connection, _ = open_run(server, client="one", seconds="600")
    assert "done" in server.messages(client="two", level="0.35")[-1]
    connection.close()


def test_a_saved_run_is_the_one_of_the_command(server, forgotten, tmp_path):
    settings = {"level": "0.7", "points": "5"}
    done = server.messages(**settings)[-1]["done"]
    file = Path(server.messages("save", **settings)[-1]["done"]["file"])
    assert file.is_relative_to(server.home / "results")
    assert main([*done["command"].split()[1:], "--out", str(tmp_path)]) == 0
    other = tmp_path / file.relative_to(server.home / "results")
    saved, run = xr.load_dataset(file), xr.load_dataset(other)
    xr.testing.assert_equal(saved, run)
    differing = {name for name in run.attrs if run.attrs[name] != saved.attrs[name]}
    assert differing <= {"started", "finished", "cpu_seconds", "process"}
    assert saved.attrs["settings"] == json.dumps(settings)
    assert "verdicts" in saved.attrs
    assert main(["check", str(file.parent), "--entry", OWN]) == 0


def test_the_copied_program_stores_the_same_run(server, tmp_path, monkeypatch):
    answer = server.messages(entry="toys/concepts", size="quick", seed="3")[-1]["done"]
    monkeypatch.chdir(tmp_path)
    exec(compile(answer["python"], "copied", "exec"), {})
    (file,) = tmp_path.glob("results/toys/concepts/*.nc")
    stored = Reproduction.open(file)
    assert (stored.provenance.size, stored.provenance.settings) == ("quick", {"seed": "3"})
    assert [{"claim": v.claim, "outcome": position(v.outcome)} for v in stored.verdicts] == [
        {"claim": one["claim"], "outcome": one["outcome"]} for one in answer["signs"]
    ]


def test_a_name_in_a_copied_program_is_no_code():
    from saddlescope.explore.answer import python

    hostile = {"words": "'); import os; os.abort() #\n$(reboot)"}
    assert repr(hostile) in python("own/timed", "quick", hostile)
    compile(python("own/timed", "quick", hostile), "copied", "exec")


def test_what_runs_in_advance_ends_before_the_workers(monkeypatch):
    """A run that was stopped after the workers waited for one of them for ever, and Python wrote about it."""
    events = []

    class Live(LiveRuns):
        def close(self):
            events.append("workers")

    async def warm(self):
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            events.append("run")

    async def serve():
        app = make_app(Live(most=1, limit=1.0), "token", Folders(Path(), Path()))
        async with app.router.lifespan_context(app):
            await asyncio.sleep(0.01)

    monkeypatch.setattr(Explorer, "warm", warm)
    asyncio.run(serve())
    assert events == ["run", "workers"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("toys/scales",), "toys/scale"),
        (("--limit", "nan"), "'nan' must be at least 1"),
        (("--results", __file__), "test_server.py: Not a directory. Give another path."),
        (("--results", f"{__file__}/below/it"), "test_server.py/below/it: Not a directory. Give another path."),
    ],
)
def test_bad_words_are_refused_before_anything_starts(words, sentence, capsys):
    assert main(["explore", *words]) == 2
    assert sentence in capsys.readouterr().err


def test_the_token_survives_and_is_this_users_alone(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    token = persistent_token()
    file = tmp_path / "saddlescope" / "explore-token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert persistent_token() == token
    if os.name != "nt" and os.environ.get("SADDLESCOPE_LIKE") != "windows":  # which has no bits of access
        file.chmod(0o644)  # someone may have read it
        renewed = persistent_token()
        assert renewed != token
        assert persistent_token() == renewed
    file.write_text("short")
    assert len(persistent_token()) == 32


def test_without_a_writable_home_there_is_a_token_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    assert len(persistent_token()) == 32


def test_without_the_extra_the_cure_is_named(tmp_path):
    code = "import sys; sys.modules['starlette'] = None\nfrom saddlescope.cli import main; sys.exit(main(['explore']))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == 2
    assert "pip install 'saddlescope[explore]'" in done.stderr


def test_a_taken_port_is_named_or_replaced(server, single, capsys):
    assert single.port != server.port
    assert main(["explore", "--port", str(server.port)]) == 2
    assert f"port must be free; got {server.port}" in capsys.readouterr().err


@pytest.mark.parametrize(("which", "how"), [("single", signal.SIGINT), ("server", signal.SIGTERM)])
def test_a_server_that_is_ended_leaves_no_process_and_no_folder(request, which, how):
    """Run last: these servers have served the tests above."""
    last = request.getfixturevalue(which)
    last.messages()
    workers = last.workers()
    assert workers
    assert any(last.home.glob("saddlescope-explore-*"))
    assert last.stop(how) == 0
    until(lambda: all(map(ended, workers)))
    assert not any(last.home.glob("saddlescope-explore-*"))
