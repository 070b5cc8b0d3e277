"""MathJax as one file of the site: formulas need no network. Fetched once from the registry of npm, by checksum."""

import base64
import hashlib
import io
import tarfile
import urllib.request
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

URL = "https://registry.npmjs.org/mathjax/-/mathjax-3.2.2.tgz"
SHA512 = "Bt+SSVU8eBG27zChVewOicYs7Xsdt40qm4+UpHyX7k0/O9NliPc+x77k1/FEsPsjKPZGJvtRZM1vO+geW0OhGw=="
FILES = {"package/es5/tex-svg-full.js": "mathjax.js", "package/LICENSE": "mathjax-license.txt"}  # SVG: needs no fonts
STATIC = Path(__file__).parents[2] / "build" / "docs-static"


def fetch_mathjax(folder: Path = STATIC, url: str = URL) -> None:
    """Write the missing files to a folder; raise if the package has another checksum."""
    if all((folder / name).is_file() for name in FILES.values()):
        return
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:  # noqa: S310 - a constant https address
            package = answer.read()
    except OSError as error:
        raise ExtensionError(
            f"MathJax could not be fetched from {url}: {error}. Connect to the network, once."
        ) from error
    if base64.b64encode(hashlib.sha512(package).digest()).decode() != SHA512:
        raise ExtensionError(f"{url} has another checksum than {SHA512}; its files were not used.")
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        for member, name in FILES.items():
            content = archive.extractfile(member)
            assert content is not None
            part = folder / f"{name}.part"
            part.write_bytes(content.read())
            part.replace(folder / name)


def setup(app: Sphinx) -> dict[str, bool]:
    """Fetch it before the static files are copied, and name it to Sphinx."""
    app.connect("config-inited", lambda app, config: fetch_mathjax())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
