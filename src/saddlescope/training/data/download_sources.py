"""Addresses and checksums of the publishers' files.

The checksums are the publishers' own or those of torchvision and torchtext. They are MD5, which detects damage; https
ensures that the files come from the publisher.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """File to download.

    Attributes:
        urls: addresses of the file; the first that answers is used.
        md5: checksum of the downloaded file.
        places: resulting files below the folder of all data sets: the file itself, or these members of the archive
            (.tar.gz or .zip), each under its own path.
    """

    urls: tuple[str, ...]
    md5: str
    places: tuple[str, ...]

    @property
    def file(self) -> str:
        """Name of the file."""
        return self.urls[0].rpartition("/")[2]


def _mnist(file: str, md5: str) -> Source:
    # The publisher's own page (yann.lecun.com) no longer serves the files; both are long-standing mirrors.
    mirrors = ("https://ossci-datasets.s3.amazonaws.com/mnist", "https://storage.googleapis.com/cvdf-datasets/mnist")
    return Source(tuple(f"{mirror}/{file}" for mirror in mirrors), md5, (f"mnist/{file}",))


def _cifar(file: str, md5: str, places: tuple[str, ...]) -> Source:
    return Source((f"https://cave.cs.toronto.edu/kriz/{file}", f"https://www.cs.toronto.edu/~kriz/{file}"), md5, places)


def _wikitext(name: str, md5: str) -> Source:
    places = tuple(f"{name}/wiki.{part}.tokens" for part in ("train", "valid", "test"))
    return Source((f"https://wikitext.smerity.com/{name}-v1.zip",), md5, places)


SOURCES: dict[str, tuple[Source, ...]] = {
    "mnist": (
        _mnist("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873"),
        _mnist("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432"),
        _mnist("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3"),
        _mnist("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c"),
    ),
    "cifar10": (
        _cifar(
            "cifar-10-python.tar.gz",
            "c58f30108f718f92721af3b95e74349a",
            tuple(f"cifar-10-batches-py/{stem}" for stem in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch")),
        ),
    ),
    "cifar100": (
        _cifar(
            "cifar-100-python.tar.gz",
            "eb9058c3a382ffc7106e4002c42a8d85",
            ("cifar-100-python/train", "cifar-100-python/test"),
        ),
    ),
    "wikitext-2": (_wikitext("wikitext-2", "542ccefacc6c27f945fb54453812b3cd"),),
    "wikitext-103": (_wikitext("wikitext-103", "9ddaacaf6af0710eda8c456decff7832"),),
}

NOT_FREE = {
    "imagenet": "imagenet is only available from https://image-net.org with an account; put its images into "
    "imagenet/train/CLASS and imagenet/val/CLASS below the folder of data sets."
}
"""Instructions for data sets that may not be redistributed."""
