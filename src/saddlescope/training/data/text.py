"""Text for training language models: WikiText in its official files, and two texts that come with Python.

    name            text                                                files in the data folder
    python-topics   the help texts of `help("topics")`, 0.4 MB          none (comes with Python)
    python-library  the source of the standard library's modules, 5 MB  none (comes with Python)
    wikitext-2      Wikipedia articles, 2 million words                 wikitext-2/wiki.{train,test}.tokens
    wikitext-103    the same, 103 million words                         wikitext-103/wiki.{train,test}.tokens

The texts that come with Python differ from one release to the next; `TextData.digest` identifies them. Tokens are those
of a byte-pair encoding learned on the training text (`learn_vocabulary`), so that nothing needs a download.
"""

import hashlib
import sys
import sysconfig
import tokenize as source_files
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Int32

from saddlescope._shared.errors import InputError, MissingExtraError, unknown

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_PIECE = 2**18  # characters encoded at once: bounds memory, and allows parallel encoding
_BYTES = 256  # tokens of a vocabulary of single bytes

# Counts of Merity et al. 2016, Table 1: words and one end of line for each line.
_WORDS = {"wikitext-2": {"train": 2_088_628, "test": 245_569}, "wikitext-103": {"train": 103_227_021, "test": 245_569}}


@dataclass(frozen=True, eq=False)
class TextData:
    """Documents for training and testing.

    Attributes:
        name: name of the text.
        train, test: the documents, each one string.
    """

    name: str
    train: tuple[str, ...]
    test: tuple[str, ...]

    def first(self, train: int, test: int | None = None) -> "TextData":
        """Return the first documents up to a number of characters; the last one may be truncated.

        Args:
            train: number of characters of the training part.
            test: number of characters of the test part; None keeps all.

        Raises:
            InputError: fewer than one character.
        """
        return TextData(self.name, _first("train", self.train, train), _first("test", self.test, test))

    def digest(self) -> str:
        """Return the SHA-256 of all documents, by which a resumed run recognizes its text."""
        digest = hashlib.sha256()
        for part in (self.train, self.test):
            digest.update(f"{len(part)} documents\n".encode())
            for document in part:
                content = document.encode()
                digest.update(f"{len(content)} bytes\n".encode())
                digest.update(content)
        return digest.hexdigest()


def _first(name: str, documents: tuple[str, ...], characters: int | None) -> tuple[str, ...]:
    if characters is None:
        return documents
    if characters < 1:
        raise InputError(f"{name} must be at least 1 character; got {characters!r}.")
    selected = []
    for document in documents:
        if characters <= 0:
            break
        selected.append(document[:characters])
        characters -= len(document)
    return tuple(selected)


@dataclass(frozen=True, eq=False)
class TokenizedText:
    """Text as blocks of tokens, the input of a language model.

    Attributes:
        name: name of the text.
        vocabulary: number of different tokens; each is from 0 to `vocabulary` - 1.
        train, test: blocks of equal length; an incomplete block at the end of the text is dropped.
    """

    name: str
    vocabulary: int
    train: Int32[np.ndarray, "n block"]
    test: Int32[np.ndarray, "m block"]

    def digest(self) -> str:
        """Return the SHA-256 of all blocks, by which a resumed run recognizes its data."""
        digest = hashlib.sha256(repr((self.vocabulary, self.train.shape, self.test.shape)).encode())
        digest.update(np.ascontiguousarray(self.train).data)
        digest.update(np.ascontiguousarray(self.test).data)
        return digest.hexdigest()


def load_text(name: str, folder: Path | str | None = None, *, verify: bool = True) -> TextData:
    """Read a text; see the module for the names and their files.

    In the texts that come with Python, every tenth document in alphabetical order is for testing; WikiText has its own
    split.

    Args:
        name: one of the names above.
        folder: the folder that holds the data sets; Python's own texts need none.
        verify: require the published numbers of words in WikiText's files. False admits your own text in files of the
            same names.

    Raises:
        InputError: an unknown name, or files that are absent, damaged or not the official ones.

    >>> len(load_text("python-topics").train) > 50
    True
    """
    if name not in _READERS:
        raise unknown("text", name, _READERS)
    return _READERS[name](name, folder, verify)


def _topics(name: str, folder: Path | str | None, verify: bool) -> TextData:
    from pydoc_data.topics import topics

    return _split(name, [topics[topic] for topic in sorted(topics)])


def _library(name: str, folder: Path | str | None, verify: bool) -> TextData:
    home = Path(sysconfig.get_paths()["stdlib"])
    files = [file for module in sorted(sys.stdlib_module_names) if (file := home / f"{module}.py").is_file()]
    if len(files) < 10:
        raise InputError(f"Python must come with the source of its library; got {str(home)!r}, which has none.")
    documents = []
    for file in files:
        with source_files.open(file) as stream:  # in the encoding that the file declares
            documents.append(stream.read())
    return _split(name, documents)


def _split(name: str, documents: list[str]) -> TextData:
    test = documents[9::10]
    del documents[9::10]
    return TextData(name, tuple(documents), tuple(test))


def _wikitext(name: str, folder: Path | str | None, verify: bool) -> TextData:
    if folder is None:
        raise InputError(
            f"folder must be the folder with the data set {name!r}; got None. The texts python-topics and "
            "python-library need no files."
        )

    def part(split: str) -> str:
        path = Path(folder) / name / f"wiki.{split}.tokens"
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InputError(
                f"folder must hold {name}/{path.name}; got {str(folder)!r}, which does not. Fetch it by: saddlescope "
                f"data get {name} --data {folder}"
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path} must be readable UTF-8 text; got: {error}. Fetch it again.") from error
        if verify and (words := _words(text)) != _WORDS[name][split]:
            raise InputError(
                f"{path} must be the official file with {_WORDS[name][split]:,} words, one end of line each included; "
                f"got {words:,}. Fetch it again, or pass verify=False if it holds your own text."
            )
        return text

    return TextData(name, (part("train"),), (part("test"),))


def _words(text: str) -> int:
    """Count words and ends of lines, piece by piece: at once, WikiText-103 would take gigabytes."""
    return sum(len(piece.split()) + piece.count("\n") for piece in _pieces(text))


def _pieces(text: str) -> Iterator[str]:
    """Split the text into pieces of complete lines, about `_PIECE` characters each."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _PIECE) + 1 or len(text)
        yield text[start:end]
        start = end


_READERS: dict[str, Callable[[str, Path | str | None, bool], TextData]] = {
    "python-topics": _topics,
    "python-library": _library,
    "wikitext-2": _wikitext,
    "wikitext-103": _wikitext,
}


def learn_vocabulary(text: TextData, size: int) -> "Tokenizer":
    """Learn a byte-pair encoding (Sennrich et al. 2016; of bytes, as GPT-2's) on the training documents.

    Any text can be encoded, and decoding restores it exactly: the first 256 tokens are the single bytes.

    Args:
        text: only its training documents are used.
        size: number of tokens of the vocabulary, at least 256; the result is smaller if no pair occurs twice any more.

    Raises:
        InputError: a size below 256; the extra `language` is not installed.
    """
    if size < _BYTES:
        raise InputError(f"size must be at least {_BYTES}, one token for each byte; got {size!r}.")
    with MissingExtraError.named("saddlescope.training.data.text"):
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size, min_frequency=2, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    tokenizer.train_from_iterator((piece for document in text.train for piece in _pieces(document)), trainer)
    return tokenizer


def tokenize(text: TextData, vocabulary: "Tokenizer", *, block: int) -> TokenizedText:
    """Split a text into blocks of tokens, document after document without a separator.

    Args:
        text: the text to encode.
        vocabulary: a tokenizer, such as the result of `learn_vocabulary`.
        block: number of tokens of one block, at least 2: all but the first are predicted.

    Raises:
        InputError: a block of fewer than 2 tokens, or longer than the training or the test text.
    """
    if block < 2:
        raise InputError(f"block must be at least 2 tokens; got {block!r}.")

    def blocks(split: str, documents: tuple[str, ...]) -> np.ndarray:
        pieces = [piece for document in documents for piece in _pieces(document)]
        parts = [np.array(encoding.ids, np.int32) for encoding in vocabulary.encode_batch_fast(pieces)]
        tokens = np.concatenate([np.empty(0, np.int32), *parts])
        if len(tokens) < block:
            raise InputError(f"block must be at most the {len(tokens)} tokens of the {split} text; got {block!r}.")
        return tokens[: len(tokens) // block * block].reshape(-1, block)

    return TokenizedText(
        name=text.name,
        vocabulary=vocabulary.get_vocab_size(),
        train=blocks("training", text.train),
        test=blocks("test", text.test),
    )
