"""The build fails where a page loads from another host: the site works in any folder of any host, offline too."""

import re
from html.parser import HTMLParser
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LOADING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
LOADING |= {"embed": "src", "object": "data", "link": "href", "form": "action", "base": "href"}
IN_STYLE = re.compile(r"(?:@import\s+|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+|/[^\"')\s]+)")


class _Loaded(HTMLParser):
    """Addresses that a page loads by itself; those that a reader follows do not count."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what a tag loads."""
        named = dict(attrs)
        if tag in LOADING and (address := named.get(LOADING[tag])):
            self.found.append(address)
        self.found += [part.split()[0] for part in (named.get("srcset") or "").split(",") if part.strip()]
        self.found += IN_STYLE.findall(named.get("style") or "")


def elsewhere(text: str, kind: str = ".html") -> list[str]:
    """Return the addresses of other hosts, or of the host's root, that a page or a style sheet loads."""
    if kind == ".css":
        return IN_STYLE.findall(text)
    page = _Loaded()
    page.feed(text)
    return [address for address in page.found if re.match(r"(?:[a-z]+:)?//|/", address)]


def check_site(folder: Path) -> list[str]:
    """Return a sentence for each address that a file of the site loads from elsewhere."""
    files = [file for file in sorted(folder.rglob("*")) if file.suffix in (".html", ".css")]
    return [
        f"{file.relative_to(folder)} loads {address}"
        for file in files
        for address in elsewhere(file.read_text(encoding="utf-8"), file.suffix)
    ]


def _finished(app: Sphinx, failure: Exception | None) -> None:
    if failure is None and app.builder.format == "html" and (faults := check_site(Path(app.outdir))):
        raise ExtensionError("The site must load nothing from other hosts: " + "; ".join(faults[:10]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Check at the end of each build."""
    app.connect("build-finished", _finished)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
