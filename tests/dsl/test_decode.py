"""Bytes of every kind become a source or one diagnostic."""

from __future__ import annotations

import pytest
from agym.dsl.diagnostics import Diagnostic
from agym.dsl.source import Source
from agym.dsl.text.decode import MAX_BYTES, decode, without_surrogates


def refused(data: bytes) -> Diagnostic:
    result = decode("r.yaml", data)
    assert isinstance(result, Diagnostic)
    return result


def read(data: bytes) -> Source:
    result = decode("r.yaml", data, key="/r.yaml")
    assert isinstance(result, Source)
    return result


def test_utf8_keeps_its_line_ends() -> None:
    assert read("a: é\r\nb: 😀\n".encode()).text == "a: é\r\nb: 😀\n"


def test_a_byte_order_mark_is_no_character_of_the_text() -> None:
    assert read(b"\xef\xbb\xbfa: 1\n").text == "a: 1\n"


def test_the_key_of_the_library_is_kept() -> None:
    assert read(b"a: 1").identity == "/r.yaml"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_wide_encodings_are_named(encoding: str) -> None:
    diagnostic = refused("a: 1\nb: 2\n".encode(encoding))
    assert diagnostic.code == "not-utf8"
    assert encoding[:6].upper() in diagnostic.message


def test_a_stray_byte_is_found_at_its_line_and_column() -> None:
    diagnostic = refused(b"a: 1\nb: caf\xe9\n")
    assert str(diagnostic.span) == "r.yaml:2:7"
    assert "0xe9" in diagnostic.message
    assert diagnostic.span.source.line_text(2) == "b: café"


def test_a_stray_byte_after_a_byte_order_mark_has_the_column_of_an_editor() -> None:
    assert str(refused(b"\xef\xbb\xbfa: \xff\n").span) == "r.yaml:1:4"


def test_binary_data_is_refused_in_one_sentence() -> None:
    assert refused(bytes(range(256))).code == "not-utf8"


def test_a_large_file_is_refused_before_it_is_decoded() -> None:
    diagnostic = refused(b"\xff" * (MAX_BYTES + 1))
    assert diagnostic.code == "too-large"
    assert diagnostic.span.source.text == ""


def test_the_largest_file_is_read() -> None:
    assert len(read(b"#" * MAX_BYTES).text) == MAX_BYTES


def test_hidden_bytes_of_an_argument_become_a_character_that_is_refused() -> None:
    assert without_surrogates("a=\udcff") == "a=\0"
