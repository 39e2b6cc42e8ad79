"""Where passages and questions come from: retrievers, benchmarks' files, packaged documentation."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import httpx
import numpy as np
import pytest
from agym.envs.errors import BadOption, EnvFault, FaultKind
from agym.envs.search import create
from agym.envs.search.build import PACKAGES, Missing, _fetch, _passages, main
from agym.envs.search.corpus.documents import read_dictionary, read_html, read_manual, read_plain
from agym.envs.search.corpus.index import LocalIndex
from agym.envs.search.corpus.passages import Passage, cut_passages
from agym.envs.search.corpus.retriever import DenseRetriever, HttpEncoder, HttpRetriever
from agym.envs.search.generate import make_questions
from agym.envs.search.wordnet import format_synsets, load_shipped, read_database
from numpy.typing import NDArray

OTTER, PIKE, RIVER, SEA = (
    Passage(title=title, text=text, document=document)
    for title, text, document in (
        ("Otter", "The otter eats fish.", "animals"),
        ("Pike", "The pike eats fish, too.", "animals"),
        ("River", "Rivers run into the sea.", "waters"),
        ("Sea", "The sea is salt.", "waters"),
    )
)
ALL = (OTTER, PIKE, RIVER, SEA)


# --- retrievers ----------------------------------------------------------------------------------------------------


def test_the_local_index_finds_by_words_without_their_endings() -> None:
    index = LocalIndex.build(ALL)
    assert index.search("a river that runs", 1) == (RIVER,)
    assert set(index.search("eating", 5)) == {OTTER, PIKE}
    assert index.search("submarine", 3) == ()
    assert index.num_passages == 4


def test_what_fits_equally_well_comes_in_the_order_of_the_corpus() -> None:
    same = [Passage(title="", text="one and the same", document=f"{number}") for number in range(50)]
    assert LocalIndex.build(same).search("same", 5) == tuple(same[:5])


def test_the_rest_of_a_document_follows_what_was_found() -> None:
    index = LocalIndex.build(ALL)
    assert index.rest(RIVER) == (RIVER, SEA)
    assert index.rest(SEA) == (SEA,)


def served(answer: object, status: int = 200) -> tuple[httpx.MockTransport, list[object]]:
    """A server that always answers the same, and what it was asked."""
    asked: list[object] = []

    def handle(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(status, json=answer)

    return httpx.MockTransport(handle), asked


def test_a_served_retriever_is_asked_in_the_usual_form() -> None:
    found = {"document": {"id": "7", "contents": '"Otter"\nThe otter eats fish.'}, "score": 1.5}
    transport, asked = served({"result": [[found, found]]})
    retriever = HttpRetriever("http://there/retrieve", transport)
    (passage,) = retriever.search("otters", 1)
    assert passage == Passage(title="Otter", text="The otter eats fish.", document="7")
    assert asked == [{"queries": ["otters"], "topk": 1, "return_scores": True}]
    assert retriever.rest(passage) == (passage,)


@pytest.mark.parametrize("answer", [{}, {"result": []}, {"result": [[{"document": {}}]]}, [], {"result": [[3]]}])
def test_an_answer_that_makes_no_sense_is_the_retrievers_fault(answer: object) -> None:
    with pytest.raises(EnvFault) as fault:
        HttpRetriever("http://there", served(answer)[0]).search("x", 3)
    assert fault.value.kind is FaultKind.GARBAGE


def test_a_retriever_that_fails_is_the_retrievers_fault() -> None:
    with pytest.raises(EnvFault) as fault:
        HttpRetriever("http://there", served({}, 500)[0]).search("x", 3)
    assert fault.value.kind is FaultKind.UNREACHABLE


def by_letters(texts: Sequence[str]) -> NDArray[np.float32]:
    return np.array([[text.lower().count(letter) for letter in "ops"] for text in texts], dtype=np.float32)


def test_a_dense_retriever_finds_by_vectors() -> None:
    retriever = DenseRetriever(ALL, by_letters([each.title for each in ALL]), by_letters)
    assert retriever.search("pppp", 1) == (PIKE,)
    assert retriever.search("zzz", 2) == (OTTER, PIKE)
    assert retriever.rest(RIVER) == (RIVER, SEA)


def test_vectors_must_be_as_many_as_passages() -> None:
    with pytest.raises(ValueError, match="a vector for each of 4 passages"):
        DenseRetriever(ALL, by_letters(["x"]), by_letters)


def test_a_served_encoder_is_asked_in_the_usual_form() -> None:
    transport, asked = served({"data": [{"embedding": [1, 2]}, {"embedding": [3, 4]}]})
    assert HttpEncoder("http://there", transport)(["a", "b"]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert asked == [{"input": ["a", "b"]}]
    with pytest.raises(EnvFault, match="does not answer as an encoder"):
        HttpEncoder("http://there", served({"data": [{}]})[0])(["a"])


def test_an_encoder_needs_vectors_beside_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Otters\n\nThey eat fish.")
    env = create({"corpus": str(tmp_path), "encoder_url": "http://localhost:1/v1/embeddings"})
    with pytest.raises(BadOption, match=r"vectors\.npy' cannot be used"):
        env.reset(env.tasks("train")[0], 0)


# --- benchmarks ----------------------------------------------------------------------------------------------------

HOTPOT = [{"_id": "5a8b", "question": "Q?", "answer": "A", "type": "bridge", "supporting_facts": [], "context": []}]
TRIVIA = {"Data": [{"QuestionId": "tc_1", "Question": "Q?", "Answer": {"Value": "A", "Aliases": ["A", "AA"]}}]}
MUSIQUE = {"id": "2hop__1_2", "question": "Q?", "answer": "A", "answer_aliases": ["AA"], "answerable": True}
POPQA = 'id\tsubj\tquestion\tpossible_answers\n42\tX\tQ?\t"[""A"", ""AA""]"\n'
PUBLISHED: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "nq": ({"nq.jsonl": '{"question": "Q?", "answer": ["A", "AA"]}\n'}, "nq/1", ("A", "AA")),
    "triviaqa": ({"triviaqa.json": json.dumps(TRIVIA)}, "triviaqa/tc_1", ("A", "AA")),
    "popqa": ({"popqa.tsv": POPQA}, "popqa/42", ("A", "AA")),
    "hotpotqa": ({"hotpotqa.json": json.dumps(HOTPOT)}, "hotpotqa/5a8b", ("A",)),
    "2wikimultihop": (
        {
            "2wikimultihop.json": json.dumps([{**HOTPOT[0], "answer_id": "Q1", "evidences": []}]),
            "id_aliases.json": '{"Q_id": "Q1", "aliases": ["AA"], "demonyms": ["AAA"]}\n',
        },
        "2wikimultihop/5a8b",
        ("A", "AA", "AAA"),
    ),
    "musique": (
        {"musique.jsonl": "".join(f"{json.dumps(row)}\n" for row in (MUSIQUE, {**MUSIQUE, "answerable": False}))},
        "musique/2hop__1_2",
        ("A", "AA"),
    ),
    "bamboogle": ({"bamboogle.csv": '\ufeffQuestion,Answer\n"Q?","A"\n'}, "bamboogle/1", ("A",)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_benchmark_is_read_as_it_is_published(name: str, tmp_path: Path) -> None:
    texts, task, answers = PUBLISHED[name]
    for file, text in texts.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    env = create({"benchmarks": str(tmp_path)})
    assert env.spec.splits == ("train", "test", "hop1", "hop2", name)
    assert env.tasks(name) == (task,)
    for answer in answers:
        assert env.reset(task, 0).text == "Question: Q?"
        assert env.step(f"answer {answer}").reward == 1.0
    env.reset(task, 0)
    assert env.step("answer B").reward == 0.0


def test_what_ends_a_line_elsewhere_may_stand_in_an_alias(tmp_path: Path) -> None:
    texts, task, _ = PUBLISHED["2wikimultihop"]
    for file, text in texts.items():
        (tmp_path / file).write_text(text.replace("AAA", "AAA\u2028B"), encoding="utf-8")
    env = create({"benchmarks": str(tmp_path)})
    env.reset(task, 0)
    assert env.step("answer AAA B").reward == 1.0


@pytest.mark.parametrize("name", PUBLISHED)
def test_any_benchmark_may_be_in_the_form_that_they_share(name: str, tmp_path: Path) -> None:
    row = {"id": f"{name}_0", "question": "Q?", "golden_answers": ["A", "AA"]}
    (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(row)}\n")
    env = create({"benchmarks": str(tmp_path)})
    assert env.tasks(name) == (f"{name}/{name}_0",)
    env.reset(f"{name}/{name}_0", 0)
    assert env.step("answer aa").reward == 1.0


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_file_that_is_something_else_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / next(iter(PUBLISHED[name][0]))).write_text('{"x": 1}\n')
    with pytest.raises(BadOption, match=name):
        create({"benchmarks": str(tmp_path)})


# --- documentation -------------------------------------------------------------------------------------------------


def test_a_text_is_cut_at_its_paragraphs_and_a_long_one_between_words() -> None:
    text = "one two\n\nthree four five\n\n" + " ".join(f"w{number}" for number in range(12))
    assert [each.text for each in cut_passages("T", text, "d", words=5)] == [
        "one two three four five",
        "w0 w1 w2 w3 w4",
        "w5 w6 w7 w8 w9",
        "w10 w11",
    ]


def test_a_page_is_read_without_what_is_around_its_text(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(
        "<html><head><title>On\n otters</title><style>p {}</style></head><body><nav>Home</nav>"
        "<h1>Otters</h1><p>They eat <b>fish</b> &amp; crabs.</p><script>x()</script><li>One<li>Two</body></html>"
    )
    assert list(read_html(file)) == [("On otters", "Otters\n\nThey eat fish & crabs.\n\nOne\n\nTwo")]


def test_a_manual_page_is_read_without_its_setting(tmp_path: Path) -> None:
    file = tmp_path / "otter.1.gz"
    lines = (
        '.\\" A comment',
        ".TH OTTER 1",
        ".SH NAME",
        "otter \\- eats",
        ".SH SYNOPSIS",
        ".B otter",
        '.IR fish " ..."',
        ".PP",
        "See \\fBpike\\fP(1).",
    )
    page = "".join(f"{line}\n" for line in lines)
    file.write_bytes(gzip.compress(page.encode()))
    assert list(read_manual(file)) == [("otter.1", "NAME otter - eats\n\nSYNOPSIS otter fish ...\n\nSee pike(1).")]


def test_a_plain_text_is_called_by_its_first_line(tmp_path: Path) -> None:
    file = tmp_path / "x.txt"
    file.write_text("\n====\nOtters\n====\n\nThey  eat\nfish.\n")
    assert list(read_plain(file)) == [("Otters", "==== Otters ====\n\nThey eat fish.")]


def test_a_dictionary_gives_each_entry_once(tmp_path: Path) -> None:
    entries = ("about this", "otter\n   an animal", "pike\n   a fish")
    with gzip.open(tmp_path / "d.dict.dz", "wb") as text:
        text.write("".join(entries).encode())
    (tmp_path / "d.index").write_text("00-database-info\tA\tK\notter\tK\tS\notters\tK\tS\npike\tc\tO\n")
    assert list(read_dictionary(tmp_path / "d.index")) == [("otter", "otter an animal"), ("pike", "pike a fish")]


WHEEL = """\
  1 This software and database is being provided to you under a licence
00000001 06 n 02 wheel 0 roller 0 001 #p 00000002 n 0000 | what turns; "the wheel came off"
00000002 06 n 01 cart 0 001 #p 00000003 n 0000 | what has two of them
00000003 06 n 01 old_train 0 000 | several carts
00000004 08 n 01 cart_wheel 0 001 #p 00000002 n 0000 | one that gives its answer away
"""


def test_questions_are_made_of_what_is_part_of_what(tmp_path: Path) -> None:
    for name in ("noun", "verb", "adj", "adv"):
        (tmp_path / f"data.{name}").write_text(WHEEL if name == "noun" else "")
    synsets = read_database(tmp_path)
    asked = {(name, [each.names[0] for each in row[1:]][-1]) for name, row, _ in make_questions(synsets)}
    assert asked == {("wheel", "cart"), ("wheel", "old train"), ("cart", "old train")}
    assert len({side for _, _, side in make_questions(synsets)}) == 1
    assert synsets["n00000001"].gloss == "what turns"


def test_the_shipped_passages_are_written_as_they_are_read() -> None:
    file = Path(__file__).parents[2] / "envs" / "search" / "data" / "wordnet.txt"
    assert "".join(f"{line}\n" for line in format_synsets(load_shipped().values())) == file.read_text("utf-8")


def test_what_cannot_be_had_is_told_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Missing):
        list(_passages(PACKAGES[0], tmp_path))
    assert main([str(_with_text(tmp_path)), "--index"]) == 0
    assert capsys.readouterr().out.startswith("1 passages in ")


def _with_text(folder: Path) -> Path:
    (folder / "a.txt").write_text("Otters\n\nThey eat fish.")
    return folder


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("apt-get") is None, reason="no apt here to get packages with")
def test_a_corpus_is_built_of_debians_packages(tmp_path: Path) -> None:
    """Of the two smallest; a machine without a mirror has none."""
    names = ["manpages", "debian-reference-en"]
    try:
        _fetch(next(package for package in PACKAGES if package.name == names[0]), tmp_path / "probe")
    except Missing as why:
        pytest.skip(f"apt has no packages here: {why}")
    assert main([str(tmp_path / "corpus"), "--packages", *names]) == 0
    env = create({"corpus": str(tmp_path / "corpus")})
    env.reset(env.tasks("train")[0], 0)
    assert "host.conf.5" in env.step("search host.conf resolver configuration file").observation.text
    manifest = json.loads((tmp_path / "corpus" / "packages.json").read_text())
    assert set(manifest["packages"]) == set(names)
    assert manifest["missing"] == {}
