"""Which models this server offers. The browser chooses only among these names.

STREAMSCOPE_MODELS lists them, separated by commas: a catalogue name, a local folder, or a hub id with an optional revision
(`owner/name@revision`). The first one is opened at start. The single word `any` at the end of the list lets everybody who can
reach the page open any hub id; local folders stay limited to the list. Nothing set: the embedded model alone.
"""

import os
from dataclasses import dataclass

from analyses.sources import EMBEDDED


@dataclass(frozen=True)
class Entry:
    """One model that may be opened."""

    label: str  # what the page shows
    source: str
    revision: str | None = None


@dataclass(frozen=True)
class Catalogue:
    """The allow-list of this server."""

    entries: tuple[Entry, ...]
    any_hub_id: bool = False

    def find(self, label: str) -> Entry:
        """The entry with this label, or a hub id where any is allowed.

        Raises:
            ValueError: a name that is not on the list.
        """
        for entry in self.entries:
            if entry.label == label:
                return entry
        if self.any_hub_id and looks_like_hub_id(label):
            return parse_entry(label)
        names = ", ".join(entry.label for entry in self.entries)
        also = " or a hub id (owner/name)" if self.any_hub_id else ""
        raise ValueError(f"needs one of: {names}{also}; found {label!r}; choose a model of this server's list.")


def label_of(source: str) -> str:
    """What the page calls a source that is being opened."""
    return next((entry.label for entry in load_catalogue().entries if entry.source == source), source)


def looks_like_hub_id(text: str) -> bool:
    """Whether a text has the form owner/name and is no path."""
    source = text.partition("@")[0]
    owner, slash, name = source.partition("/")
    path = owner.startswith((".", "~")) or name in (".", "..") or os.path.isdir(text) or os.path.isdir(source)
    return bool(slash and owner and name) and "/" not in name and not path


def parse_entry(text: str) -> Entry:
    """One item of the list; only hub ids carry a revision."""
    if looks_like_hub_id(text):
        source, _, revision = text.partition("@")
        return Entry(text, source, revision or None)
    if os.path.isabs(text) or text.startswith((".", "~")) or os.path.isdir(text):
        folder = os.path.abspath(os.path.expanduser(text))  # the model's process has a working folder of its own
        return Entry(os.path.basename(folder), folder)
    return Entry(text, text)


def load_catalogue() -> Catalogue:
    """The catalogue that the environment describes."""
    names = [name.strip() for name in os.environ.get("STREAMSCOPE_MODELS", EMBEDDED).split(",") if name.strip()]
    any_hub_id = "any" in names
    entries = tuple(parse_entry(name) for name in names if name != "any")
    return Catalogue(entries or (parse_entry(EMBEDDED),), any_hub_id)
