"""Downloads from a local server: complete files are stored, broken ones resumed, wrong ones rejected."""

import hashlib
import io
import tarfile
import threading
import zipfile
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from refusals import refused
from saddlescope._shared.errors import InputError
from saddlescope.cli import main
from saddlescope.training.data import download as download_module
from saddlescope.training.data.download import download
from saddlescope.training.data.download_sources import SOURCES, Source

CONTENT = bytes(range(256)) * 40


class Server(ThreadingHTTPServer):
    """Server of `files`; breaks a connection after `breaks` bytes if set; may not support ranges."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.breaks: int | None = None
        self.ranges = True
        self.asked: list[str | None] = []

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{name}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        server.asked.append(self.headers.get("Range"))
        content = server.files.get(self.path[1:])
        if content is None:
            self.send_error(404)
            return
        start = 0
        if server.ranges and (asked := self.headers.get("Range")):
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                self.send_error(416)
                return
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start : None if server.breaks is None else start + server.breaks])

    def log_message(self, format, *args):
        pass


@pytest.fixture
def server():
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


def source(server, name, content, places, *, urls=None) -> dict[str, tuple[Source, ...]]:
    server.files[name] = content
    return {"set": (Source(urls or (server.url(name),), md5(content), places),)}


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_file_comes_whole_to_its_place_and_only_once(server, tmp_path):
    sources = source(server, "a.gz", CONTENT, ("one/a.gz",))
    reports = []
    files = download("set", tmp_path / "data", sources=sources, report=lambda *report: reports.append(report))
    assert files == (tmp_path / "data" / "one" / "a.gz",)
    assert files[0].read_bytes() == CONTENT
    assert names(tmp_path) == ["data/one/a.gz"]
    fractions = [fraction for fraction, _ in reports]
    assert fractions == sorted(fractions)
    assert fractions[-1] == 1
    asked = len(server.asked)
    assert download("set", tmp_path / "data", sources=sources) == files
    assert len(server.asked) == asked


def test_a_broken_download_goes_on_behind_its_last_byte(server, tmp_path):
    sources = source(server, "a", CONTENT, ("a",))
    server.breaks = 5000
    refused(r"a could not be downloaded .*broke after 5000 of 10240 bytes", download, "set", tmp_path, sources=sources)
    assert names(tmp_path) == ["a.part"]
    refused("broke after 10000 of 10240", download, "set", tmp_path, sources=sources)
    server.breaks = None
    download("set", tmp_path, sources=sources)
    assert server.asked == [None, "bytes=5000-", "bytes=10000-"]
    assert (tmp_path / "a").read_bytes() == CONTENT
    assert names(tmp_path) == ["a"]


def test_a_server_without_ranges_sends_all_of_it(server, tmp_path):
    sources = source(server, "a", CONTENT, ("a",))
    server.ranges = False
    (tmp_path / "a.part").write_bytes(b"something else")
    download("set", tmp_path, sources=sources)
    assert (tmp_path / "a").read_bytes() == CONTENT


def test_what_was_received_whole_but_not_put_in_place_is(server, tmp_path):
    sources = source(server, "a", CONTENT, ("a",))
    (tmp_path / "a.part").write_bytes(CONTENT)
    download("set", tmp_path, sources=sources)
    assert server.asked == ["bytes=10240-"]
    assert names(tmp_path) == ["a"]


def test_another_file_is_refused_and_not_kept(server, tmp_path):
    sources = source(server, "a", CONTENT, ("a",))
    server.files["a"] = CONTENT[::-1]
    with pytest.raises(
        InputError, match=f"a must have the MD5 {md5(CONTENT)} of the publisher; got {md5(CONTENT[::-1])}"
    ):
        download("set", tmp_path, sources=sources)
    assert names(tmp_path) == []


def test_the_next_address_is_tried_and_all_are_named(server, tmp_path):
    sources = source(server, "a", CONTENT, ("a",), urls=(server.url("gone/a"), server.url("a")))
    download("set", tmp_path / "one", sources=sources)
    assert (tmp_path / "one" / "a").read_bytes() == CONTENT
    del server.files["a"]
    refused(r"gone/a: Not Found; .*/a: Not Found", download, "set", tmp_path / "two", sources=sources)


def tar(members: dict[str, bytes], links: dict[str, str]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as packed:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
        for name, target in links.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            packed.addfile(info)
    return buffer.getvalue()


def zipped(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return buffer.getvalue()


@pytest.mark.parametrize("pack", [lambda members: tar(members, {}), zipped])
def test_of_an_archive_the_wanted_members_come_and_nothing_else(server, tmp_path, pack):
    archive = pack({"set/train": b"1", "set/test": b"2", "../evil": b"3", "set/more": b"4"})
    download("set", tmp_path / "data", sources=source(server, "set.archive", archive, ("set/train", "set/test")))
    assert names(tmp_path) == ["data/set/test", "data/set/train"]
    assert (tmp_path / "data/set/test").read_bytes() == b"2"


def test_an_archive_without_its_members_or_with_a_link_in_their_place_is_refused(server, tmp_path):
    for links in ({}, {"set/train": "/etc/passwd"}):
        sources = source(server, "set.tar.gz", tar({"set/other": b"1"}, links), ("set/train",))
        refused(r"set.tar.gz must be an archive with set/train", download, "set", tmp_path, sources=sources)
        assert "set/train" not in names(tmp_path)


def test_bad_input(tmp_path):
    refused("no data set to download 'cifar'; did you mean cifar10", download, "cifar", tmp_path)
    refused(r"imagenet is only available from https://image-net\.org", download, "imagenet", tmp_path)
    (tmp_path / "file").write_text("")
    refused("folder must be one that can be written to", download, "mnist", tmp_path / "file" / "data")


def test_every_source_is_https_and_known_by_a_checksum_and_gives_what_the_readers_read():
    for sources in SOURCES.values():
        for each in sources:
            assert all(url.startswith("https://") for url in each.urls)
            assert len(each.md5) == 32
            assert all(url.endswith(f"/{each.file}") for url in each.urls)
    assert {place for each in SOURCES["mnist"] for place in each.places} == {
        f"mnist/{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")
    }
    assert "cifar-10-batches-py/data_batch_5" in SOURCES["cifar10"][0].places
    assert SOURCES["cifar100"][0].places == ("cifar-100-python/train", "cifar-100-python/test")


@pytest.mark.data
def test_official_files_that_are_there_are_not_fetched_again(data_folder):
    assert len(download("mnist", data_folder)) == 4
    assert len(download("cifar10", data_folder)) == 6  # there they are compressed by hand


def test_the_command_prints_the_files_and_says_what_is_wrong(server, tmp_path, monkeypatch, capsys):
    sources = source(server, "a", CONTENT, ("a",))
    monkeypatch.setattr(download_module, "download", partial(download, sources=sources))
    assert main(["data", "get", "set", "--data", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'a'}\n"
    assert main(["data", "get", "sett", "--data", str(tmp_path)]) == 2
    assert "did you mean set" in capsys.readouterr().err
    assert main(["data", "list", "--json"]) == 0
    assert "cifar-100-python/train" in capsys.readouterr().out
