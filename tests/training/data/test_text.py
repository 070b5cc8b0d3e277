"""Texts and their tokens: lossless, learned from the training part only, official files verified."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from refusals import refused
from saddlescope.training.data import text as text_module
from saddlescope.training.data.text import TextData, learn_vocabulary, load_text, tokenize

ODD = "naïve \t ütf–8 😀\r\n\n\n  if x == 3:\n\treturn 'Ġ'\n" * 40


def a_text(train, test="the tests"):
    return TextData("mine", (train,), (test,))


def encoded(text, vocabulary, block):
    return tokenize(text, vocabulary, block=block).train.ravel().tolist()


def test_python_s_own_texts_are_whole_and_split_by_documents():
    from pydoc_data.topics import topics

    text = load_text("python-topics")
    assert set(text.train) | set(text.test) == set(topics.values())
    assert text.test == tuple(topics[name] for name in sorted(topics)[9::10])
    library = load_text("python-library")
    assert sum(map(len, library.train)) > 2_000_000
    assert any("class ArgumentParser" in document for document in (*library.train, *library.test))


def test_the_first_characters_are_cut_within_a_document():
    text = TextData("mine", ("abc", "defg", "hij"), ("xyz", "uvw"))
    assert text.first(5).train == ("abc", "de")
    assert text.first(3).train == ("abc",)
    assert text.first(99, 4).train == text.train
    assert text.first(1, 4).test == ("xyz", "u")
    assert text.first(1).test == text.test


def test_a_digest_sees_where_documents_end_and_which_part_they_are_of():
    texts = [
        TextData("a", ("ab", "c"), ("d",)),
        TextData("a", ("a", "bc"), ("d",)),
        TextData("a", ("ab",), ("c", "d")),
        TextData("a", ("abc",), ("d",)),
    ]
    assert len({text.digest() for text in texts}) == 4
    assert texts[0].digest() == TextData("another name", ("ab", "c"), ("d",)).digest()


@pytest.mark.parametrize("piece", [2**18, 7])
def test_decoding_gives_the_text_back_to_the_letter(monkeypatch, piece):
    monkeypatch.setattr(text_module, "_PIECE", piece)
    text = a_text(ODD)
    vocabulary = learn_vocabulary(text, 300)
    assert vocabulary.decode(encoded(text, vocabulary, 2)) in (ODD, ODD[:-1])  # an odd last token is left out
    strange = a_text("Ωmega: text the vocabulary never saw \x00")
    assert strange.train[0].startswith(vocabulary.decode(encoded(strange, vocabulary, 2)))


def pairs_by_hand(words, merges):
    """Learn a byte-pair encoding as in Sennrich et al. 2016: join the most frequent pair of neighbours, repeatedly."""
    count = Counter(tuple(word) for word in words)
    learnt = []
    for _ in range(merges):
        pairs = Counter()
        for symbols, n in count.items():
            for pair in pairwise(symbols):
                pairs[pair] += n
        (best, n), (_, second) = pairs.most_common(2)
        assert n > second, "the text must leave no choice"
        learnt.append("".join(best))
        joined = Counter()
        for symbols, m in count.items():
            merged, k = [], 0
            while k < len(symbols):
                step = 2 if symbols[k : k + 2] == best else 1
                merged.append("".join(symbols[k : k + step]))
                k += step
            joined[tuple(merged)] += m
        count = joined
    return learnt


def test_the_vocabulary_is_that_of_byte_pair_encoding():
    words = ["ab"] * 5 + ["abc"] * 3 + ["abcd"] * 2 + ["xab"] * 4
    text = a_text("".join(f" {word}" for word in words))
    learnt = pairs_by_hand([f"Ġ{word}" for word in words], 3)
    assert learnt == ["ab", "Ġab", "Ġabc"]
    vocabulary = learn_vocabulary(text, 256 + 3)
    assert [vocabulary.id_to_token(256 + k) for k in range(3)] == learnt


def test_the_vocabulary_is_learnt_on_the_training_text_alone():
    one, other = (learn_vocabulary(a_text("a plain text, " * 9, test), 270) for test in ("zyzzyva " * 99, "x"))
    assert one.get_vocab() == other.get_vocab()
    assert one.token_to_id("zy") is None


def test_blocks_follow_each_other_and_documents_are_joined():
    text = TextData("mine", ("abcde", "fgh"), ("0123456789",))
    data = tokenize(text, learn_vocabulary(a_text("-"), 256), block=3)
    vocabulary = learn_vocabulary(a_text("-"), 256)
    assert [vocabulary.decode(block.tolist()) for block in data.train] == ["abc", "def"]
    assert [vocabulary.decode(block.tolist()) for block in data.test] == ["012", "345", "678"]
    assert data.vocabulary == 256
    assert data.train.dtype == np.int32


def test_tokens_have_a_digest_that_sees_the_split():
    vocabulary = learn_vocabulary(a_text("-"), 256)
    one, other, again = (
        tokenize(TextData("mine", (train,), (test,)), vocabulary, block=2).digest()
        for train, test in (("abcd", "ef"), ("ab", "cdef"), ("abcd", "ef"))
    )
    assert one == again != other


def wikitext(folder, train="some words\n", test="a test .\n"):
    home = folder / "wikitext-2"
    home.mkdir()
    (home / "wiki.train.tokens").write_text(train, encoding="utf-8")
    (home / "wiki.test.tokens").write_text(test, encoding="utf-8")
    return folder


def test_ones_own_text_in_wikitext_s_files(tmp_path):
    text = load_text("wikitext-2", wikitext(tmp_path), verify=False)
    assert (text.train, text.test) == (("some words\n",), ("a test .\n",))


def test_files_of_another_length_are_not_the_official_ones(tmp_path):
    refused(r"2,088,628 words.* got 3\b", load_text, "wikitext-2", wikitext(tmp_path))


@pytest.mark.data
def test_the_official_files_are_recognised(data_folder):
    text = load_text("wikitext-2", data_folder)
    assert text.train[0].startswith(" \n = Valkyria Chronicles III = \n")
    assert "Robert <unk>" in text.test[0][:40]


def test_what_is_wrong_is_said(tmp_path):
    refused("did you mean wikitext-2", load_text, "wikitext2")
    refused("got None", load_text, "wikitext-2")
    refused("must hold wikitext-103/wiki", load_text, "wikitext-103", tmp_path)
    (wikitext(tmp_path) / "wikitext-2/wiki.train.tokens").write_bytes(b"\xff\xfe\x00")
    refused("UTF-8", load_text, "wikitext-2", tmp_path)
    refused("size must be at least 256", learn_vocabulary, a_text("x"), 255)
    refused("train must be at least 1", a_text("x").first, 0)
    vocabulary = learn_vocabulary(a_text("x"), 256)
    refused("block must be at least 2", tokenize, a_text("x"), vocabulary, block=1)
    refused("at most the 9 tokens of the test text", tokenize, a_text("long enough text"), vocabulary, block=10)
