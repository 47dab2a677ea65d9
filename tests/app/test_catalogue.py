"""Which models a browser may open: those on the list, and hub ids where the person who started the server says so."""

import re

import pytest

from analyses.sources import EMBEDDED
from app.catalogue import Catalogue, Entry, load_catalogue, looks_like_hub_id, parse_entry

THREE_PARTS = re.compile(r"needs .+; found .+; \w.+\.", re.DOTALL)


def catalogue(monkeypatch, text):
    monkeypatch.setenv("STREAMSCOPE_MODELS", text)
    return load_catalogue()


def test_without_a_list_the_embedded_model_is_the_only_one(monkeypatch):
    monkeypatch.delenv("STREAMSCOPE_MODELS", raising=False)
    assert load_catalogue() == Catalogue((Entry(EMBEDDED, EMBEDDED, None),), any_hub_id=False)


@pytest.mark.parametrize("empty", ["", " , ,", "any"])
def test_a_list_without_a_name_still_opens_the_embedded_model_first(monkeypatch, empty):
    found = catalogue(monkeypatch, empty)
    assert found.entries == (Entry(EMBEDDED, EMBEDDED),)
    assert found.any_hub_id == (empty == "any")


def test_a_list_keeps_its_order_and_takes_revisions_of_hub_ids(monkeypatch):
    found = catalogue(monkeypatch, " owner/name@abc123 , smollm2-135m-instruct,owner/other")
    assert [(e.label, e.source, e.revision) for e in found.entries] == [
        ("owner/name@abc123", "owner/name", "abc123"),
        (EMBEDDED, EMBEDDED, None),
        ("owner/other", "owner/other", None),
    ]
    assert not found.any_hub_id
    assert found.find("owner/name@abc123") == found.entries[0]


def test_a_folder_is_shown_by_its_name_and_opened_by_its_path(tmp_path, monkeypatch):
    folder = tmp_path / "with@sign"
    folder.mkdir()
    found = catalogue(monkeypatch, f"{folder}/")
    (entry,) = found.entries
    assert entry.label == "with@sign" and str(tmp_path) not in entry.label
    assert entry.source.rstrip("/") == str(folder) and entry.revision is None
    assert found.find("with@sign") == entry
    with pytest.raises(ValueError, match="found"):
        found.find(str(folder))


def test_a_relative_folder_that_exists_is_no_hub_id(tmp_path, monkeypatch):
    (tmp_path / "owner" / "name").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert not looks_like_hub_id("owner/name")
    assert parse_entry("owner/name").revision is None
    assert looks_like_hub_id("owner/elsewhere")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("owner/name", True),
        ("owner/name@refs/pr/1", True),
        ("name", False),
        ("/etc/passwd", False),
        ("/name", False),
        ("owner/", False),
        ("a/b/c", False),
        ("./name", False),
        ("../name", False),
        ("~/name", False),
        ("@owner/name", False),
    ],
)
def test_what_looks_like_a_hub_id(text, expected):
    assert looks_like_hub_id(text) == expected


@pytest.mark.parametrize("name", ["owner/other", "owner/name@other", "gpt2", "", "any", "../secret", "/", "**x**"])
def test_a_name_that_is_not_on_the_list_is_refused_in_three_parts(monkeypatch, name):
    found = catalogue(monkeypatch, "owner/name,smollm2-135m-instruct")
    with pytest.raises(ValueError, match=THREE_PARTS) as refusal:
        found.find(name)
    assert repr(name) in str(refusal.value)
    assert "owner/name, smollm2-135m-instruct" in str(refusal.value), "what may be chosen instead"
    assert "hub id" not in str(refusal.value), "nothing is offered that would be refused"


def test_any_opens_hub_ids_and_still_no_folder(monkeypatch, tmp_path):
    found = catalogue(monkeypatch, "smollm2-135m-instruct,any")
    assert found.any_hub_id and len(found.entries) == 1
    assert found.find("owner/name") == Entry("owner/name", "owner/name", None)
    assert found.find("owner/name@v2") == Entry("owner/name@v2", "owner/name", "v2")
    assert found.find(EMBEDDED).source == EMBEDDED
    (tmp_path / "owner" / "local").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    for path in (str(tmp_path), "owner/local", "owner/local@main", "./owner", "~/owner", "..", "owner/.."):
        with pytest.raises(ValueError, match="or a hub id") as refusal:
            found.find(path)
        assert THREE_PARTS.fullmatch(str(refusal.value))
