"""Where passages and questions come from: retrievers, benchmarks' files, packaged documentation."""

from __future__ import annotations

import csv
import gzip
import json
import shutil
from collections.abc import Mapping, Sequence
from io import StringIO
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


def test_what_is_called_as_was_searched_for_comes_first() -> None:
    titles = ("lobe lobe frontal", "frontal gyrus", "Frontal lobes, lobus frontalis", "lobe")
    of_the_brain = [Passage(title=title, text="frontal lobe " * 5, document=title) for title in titles[:2]]
    short = [Passage(title=title, text="a part", document=title) for title in titles[2:]]
    index = LocalIndex.build([*of_the_brain, *short])
    for query in ("frontal lobe", "Lobus frontalis"):
        assert index.search(query, 1)[0].title == titles[2]
    assert index.search("frontal", 1)[0].title != titles[2]


def test_a_title_that_repeats_a_word_is_found_by_it() -> None:
    titles = ("bora bora islands", "bora", "Bora Bora")
    islands = [Passage(title=title, text="bora " * 9, document=title) for title in titles]
    assert LocalIndex.build(islands).search("bora bora", 1)[0].title == "Bora Bora"


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


def test_an_encoder_needs_vectors_next_to_the_corpus(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Otters\n\nThey eat fish.")
    env = create({"corpus": str(tmp_path), "encoder_url": "http://localhost:1/v1/embeddings"})
    with pytest.raises(BadOption, match=r"vectors\.npy' cannot be used"):
        env.reset(env.tasks("train")[0], 0)


# --- benchmarks ----------------------------------------------------------------------------------------------------

Q = "Which river runs through the town where the lamp was made?"
CONTEXT = [["The lamp", ["It was made in Ostheim.", " It is green."]], ["Ostheim", ["The Alder runs through it."]]]
HOTPOT = {
    "_id": "5a8b57f25542995d1e6f1371",
    "answer": "Alder",
    "question": Q,
    "supporting_facts": [["The lamp", 0], ["Ostheim", 0]],
    "context": CONTEXT,
    "type": "bridge",
    "level": "hard",
}
WIKI = {
    "_id": "13f5ad2c088c11ebbd6fac1f6bf848b6",
    "type": "compositional",
    "question": Q,
    "context": CONTEXT,
    "entity_ids": "Q11_Q12",
    "supporting_facts": [["The lamp", 0], ["Ostheim", 0]],
    "evidences": [["The lamp", "made in", "Ostheim"], ["Ostheim", "river", "Alder"]],
    "answer": "Alder",
    "evidences_id": [["Q11", "P1", "Q12"], ["Q12", "P2", "Q13"]],
    "answer_id": "Q13",
}
TRIVIA = {
    "Data": [
        {
            "Answer": {
                "Aliases": ["Alder", "River Alder"],
                "MatchedWikiEntityName": "Alder",
                "NormalizedAliases": ["alder", "river alder"],
                "NormalizedMatchedWikiEntityName": "alder",
                "NormalizedValue": "alder",
                "Type": "WikipediaEntity",
                "Value": "Alder",
            },
            "EntityPages": [{"DocSource": "TagMe", "Filename": "Alder.txt", "Title": "Alder"}],
            "Question": Q,
            "QuestionId": "tc_1",
            "QuestionSource": "http://example.org/",
            "SearchResults": [],
        }
    ],
    "Domain": "Web",
    "VerifiedEval": False,
    "Version": 1.0,
}
MUSIQUE = {
    "id": "2hop__11_12",
    "paragraphs": [
        {"idx": 0, "title": "The lamp", "paragraph_text": "It was made in Ostheim.", "is_supporting": True},
        {"idx": 1, "title": "Ostheim", "paragraph_text": "The Alder runs through it.", "is_supporting": True},
    ],
    "question": Q,
    "question_decomposition": [
        {"id": 11, "question": "The lamp >> made in", "answer": "Ostheim", "paragraph_support_idx": 0},
        {"id": 12, "question": "Which river runs through #1?", "answer": "Alder", "paragraph_support_idx": 1},
    ],
    "answer": "Alder",
    "answer_aliases": ["River Alder"],
    "answerable": True,
}
POPQA = {
    "id": "4222362",
    "subj": "Ostheim",
    "prop": "river",
    "obj": "Alder",
    "subj_id": "11",
    "prop_id": "22",
    "obj_id": "33",
    "s_aliases": '["Ostheim on Alder"]',
    "o_aliases": '["River Alder"]',
    "s_uri": "http://example.org/Q11",
    "o_uri": "http://example.org/Q13",
    "s_wiki_title": "Ostheim",
    "o_wiki_title": "Alder",
    "s_pop": "142",
    "o_pop": "25692",
    "question": Q,
    "possible_answers": '["Alder", "River Alder"]',
}


def table(row: Mapping[str, str], delimiter: str) -> str:
    text = StringIO()
    writer = csv.DictWriter(text, list(row), delimiter=delimiter)
    writer.writeheader()
    writer.writerow(row)
    return text.getvalue()


def in_lines(*rows: Mapping[str, object]) -> str:
    return "".join(f"{json.dumps(row)}\n" for row in rows)


PUBLISHED: dict[str, tuple[dict[str, str], str, tuple[str, ...]]] = {
    "nq": (
        {"nq.jsonl": in_lines({"question": Q, "answer": ["Alder", "River Alder"]})},
        "nq/1",
        ("Alder", "River Alder"),
    ),
    "triviaqa": ({"triviaqa.json": json.dumps(TRIVIA, indent=4)}, "triviaqa/tc_1", ("Alder", "River Alder")),
    "popqa": ({"popqa.tsv": table(POPQA, "\t")}, "popqa/4222362", ("Alder", "River Alder")),
    "hotpotqa": ({"hotpotqa.json": json.dumps([HOTPOT])}, f"hotpotqa/{HOTPOT['_id']}", ("Alder",)),
    "2wikimultihop": (
        {
            "2wikimultihop.json": json.dumps([WIKI]),
            "id_aliases.json": in_lines({"Q_id": "Q13", "aliases": ["River Alder"], "demonyms": ["Alderman"]}),
        },
        f"2wikimultihop/{WIKI['_id']}",
        ("Alder", "River Alder", "Alderman"),
    ),
    "musique": (
        {"musique.jsonl": in_lines(MUSIQUE, {**MUSIQUE, "id": "2hop__11_13", "answerable": False})},
        "musique/2hop__11_12",
        ("Alder", "River Alder"),
    ),
    "bamboogle": (
        {"bamboogle.csv": "\ufeff" + table({"Question": Q, "Answer": "Alder"}, ",")},
        "bamboogle/1",
        ("Alder",),
    ),
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
        assert env.reset(task, 0).text == f"Question: {Q}"
        assert env.step(f"answer {answer}").reward == 1.0
    env.reset(task, 0)
    assert env.step("answer B").reward == 0.0


def test_what_ends_a_line_elsewhere_may_stand_in_an_alias(tmp_path: Path) -> None:
    texts, task, _ = PUBLISHED["2wikimultihop"]
    for file, text in texts.items():
        (tmp_path / file).write_text(text.replace("Alderman", "Alder\\u2028man"), encoding="utf-8")
    env = create({"benchmarks": str(tmp_path)})
    env.reset(task, 0)
    assert env.step("answer alder man").reward == 1.0


@pytest.mark.parametrize("name", PUBLISHED)
def test_any_benchmark_may_be_in_the_form_that_they_share(name: str, tmp_path: Path) -> None:
    row = {"id": f"{name}_0", "question": "Q?", "golden_answers": ["A", "AA"], "metadata": {"type": "bridge"}}
    (tmp_path / f"{name}.jsonl").write_text(f"{json.dumps(row)}\n")
    env = create({"benchmarks": str(tmp_path)})
    assert env.tasks(name) == (f"{name}/{name}_0",)
    env.reset(f"{name}/{name}_0", 0)
    assert env.step("answer aa").reward == 1.0


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "nq.jsonl",
            in_lines({"question": Q, "answer": ["A"]}, {"x": 1}),
            "line 2: expected an object with 'question'",
        ),
        ("nq.jsonl", '\n{"question": \n', "line 2: not JSON"),
        ("nq.jsonl", in_lines({"question": " ", "answer": ["A"]}), "line 1: .*its question is no text"),
        ("nq.jsonl", in_lines({"question": Q, "answer": []}), "line 1: .*no answer is accepted"),
        ("nq.jsonl", "", "has no question of nq"),
        ("triviaqa.json", '{"Data": [{"Question": "Q?", "QuestionId": "1"}]}', "entry 1: .*'Answer' is missing"),
        ("triviaqa.json", "[]", "its beginning: expected an object whose 'Data' lists .*: it is no object"),
        ("triviaqa.json", '{\n"Data": [\n', "line 3: not JSON"),
        ("popqa.tsv", table({**POPQA, "possible_answers": "Alder"}, "\t"), "line 2: .*'possible_answers', a JSON list"),
        (
            "popqa.tsv",
            table(POPQA, ","),
            "line 2: expected the columns 'id', 'question'.*'possible_answers' is missing",
        ),
        ("hotpotqa.json", json.dumps([HOTPOT, {"_id": "2", "question": Q}]), "entry 2: .*'answer' is missing"),
        ("hotpotqa.json", json.dumps([HOTPOT, HOTPOT]), "there are two questions 'hotpotqa/5a8b57f25542995d1e6f1371'"),
        ("2wikimultihop.json", json.dumps(WIKI), "its beginning: expected a list of objects.*it is no list"),
        ("musique.jsonl", in_lines(MUSIQUE) + '["x"]\n', "line 2: .*'answer_aliases'.*it is no object"),
        ("bamboogle.csv", "question,answer\nQ?,A\n", "line 2: expected the columns 'Question' and 'Answer'"),
    ],
)
def test_a_file_of_another_form_is_refused_with_its_place(file: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    with pytest.raises(BadOption, match=f"{file}.*{message}"):
        create({"benchmarks": str(tmp_path)})


def test_a_file_of_aliases_of_another_form_is_refused_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "2wikimultihop.json").write_text(json.dumps([WIKI]))
    (tmp_path / "id_aliases.json").write_text(in_lines({"Q_id": "Q13", "aliases": []}))
    with pytest.raises(BadOption, match=r"id_aliases.json, line 1: expected .*'demonyms': 'demonyms' is missing"):
        create({"benchmarks": str(tmp_path)})


@pytest.mark.parametrize("file", ["bamboogle.csv", "nq.jsonl", "triviaqa.json", "id_aliases.json"])
def test_a_file_in_another_encoding_is_refused(file: str, tmp_path: Path) -> None:
    (tmp_path / "2wikimultihop.json").write_text(json.dumps([WIKI]))
    (tmp_path / file).write_bytes("Où ?".encode("latin-1"))
    with pytest.raises(BadOption, match=f"{file}.*it is not text in UTF-8"):
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
