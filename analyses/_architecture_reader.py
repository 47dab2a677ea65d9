"""Looks up the fields of one config: under which name, with what default, and what stands there beside them."""

from collections.abc import Mapping
from typing import Any

from analyses._architecture_families import CARRIES, FAMILIES, HARMLESS, Family
from analyses._architecture_json import shown

LARGEST = 10**9  # of any width; far above every published model, small enough that totals stay readable


class Reader:
    """Looks fields up and keeps how each was found."""

    def __init__(self, config: Mapping[str, Any], remarks: list[str]) -> None:
        self.config, self.remarks = config, remarks
        self.model_type = _model_type(config)
        self.family: Family = FAMILIES[self.model_type]
        self.found: list[tuple[str, str, str]] = [("model_type", self.model_type, "read")]
        self.read_names: set[str] = {"model_type"}

    def whole(self, field: str, rule: tuple[int, str] | None = None, *, low: int = 1, high: int = LARGEST) -> int:
        """A whole number; `rule` is the derived value and its derivation, used where the field is missing or null."""
        value, how = self._look_up(field)
        derives = self.family.defaults[field] is None or field in self.family.nullable
        if value is None and rule is not None and derives:
            value, how = rule[0], f"derived: {rule[1]}"
        if type(value) is not int or not low <= value <= high:
            raise ValueError(
                f"needs {field} to be a whole number from {low:,} to {high:,}; found {shown(value)}; correct that field."
            )
        self.found.append((field, f"{value:,}", how))
        return value

    def flag(self, field: bool | str) -> bool:
        """True or false, or what the named field says."""
        if isinstance(field, bool):
            return field
        value, how = self._look_up(field)
        if not isinstance(value, bool):
            raise ValueError(f"needs {field} to be true or false; found {shown(value)}; correct that field.")
        self.found.append((field, shown(value), how))
        return value

    def word(self, field: str) -> str:
        value, how = self._look_up(field)
        if not isinstance(value, str) or not 0 < len(value) <= 100:
            raise ValueError(f"needs {field} to be a name; found {shown(value)}; correct that field.")
        self.found.append((field, value if value.isprintable() else shown(value), how))
        return value

    def has(self, field: str) -> bool:
        """Whether the family has this field at all."""
        return field in self.family.defaults

    def raw(self, field: str) -> Any:
        """A value that the caller checks and notes."""
        return self._look_up(field)[0]

    def note(self, field: str, value: str, how: str) -> None:
        self.found.append((field, value, how))

    def _look_up(self, field: str) -> tuple[Any, str]:
        names = self.family.names.get(field, (field,))
        self.read_names.update(names)
        there = [name for name in names if name in self.config]
        given = [name for name in there if self.config[name] is not None]
        values = [self.config[name] for name in given]
        if field != "hidden_act" and any(value != values[0] for value in values[1:]):
            raise ValueError(
                f"needs one value for {field}; found {shown(values[0])} as {given[0]} and {shown(values[1])} as {given[1]}; "
                "delete the wrong one."
            )
        if given:
            return values[0], "read" if given[0] == field else f"read under the name {given[0]}"
        if there and field != "hidden_act":  # a null name falls back to the default; it changes no count
            return None, ""
        return self.family.defaults[field], f"not in the file: the default of {self.family.name}"


def text_part(config: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Gemma 3 with vision keeps the language model's fields one level deeper."""
    if config.get("model_type") != "gemma3":
        return config, []
    text = config.get("text_config")
    if not isinstance(text, Mapping):
        raise ValueError(
            f"needs a text_config with the language model's fields in a gemma3 config; found {shown(text)}; "
            "paste the whole file."
        )
    inner = {"model_type": "gemma3_text"} | dict(text)
    for name in ("tie_word_embeddings", "quantization_config"):
        if name in config:
            inner.setdefault(name, config[name])
    if config.get("tie_word_embeddings", inner.get("tie_word_embeddings")) != inner.get("tie_word_embeddings"):
        raise ValueError(
            "needs one value for tie_word_embeddings; found another one inside text_config; delete the wrong one."
        )
    return inner, ["Only the language model (text_config) is counted, not the part that reads images."]


def _model_type(config: Mapping[str, Any]) -> str:
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        raise ValueError(
            f'needs a "model_type" such as "llama" in the config; found {shown(model_type)}; '
            "paste the whole config.json of a transformers model."
        )
    if model_type not in FAMILIES:
        names = ", ".join(family.name for family in FAMILIES.values())
        raise ValueError(
            f"needs a family whose parts are known here ({names}); found model_type {shown(model_type)}; "
            "another family may have parts that no field names, so it is not counted. Choose another config."
        )
    for name in ("is_encoder_decoder", "add_cross_attention", "use_bidirectional_attention"):
        if config.get(name) not in (None, False):
            raise ValueError(
                f"needs a decoder that reads from left to right; found {name} {shown(config[name])}; "
                "choose another config."
            )
    return model_type


def remarks_of(read: Reader) -> list[str]:
    """What stands in the file and is not in the count."""
    left = [name for name in read.config if name not in read.read_names]
    carries = [
        name for name in left if name in CARRIES and name not in HARMLESS and read.config[name] not in (None, False)
    ]
    unknown = [name for name in left if name not in CARRIES and name not in HARMLESS]
    remarks = list(read.remarks)
    if carries:
        remarks.append(
            f"{_names(carries)} stand{'s' if len(carries) == 1 else ''} in the file, but {read.family.name} has no such field: "
            "transformers builds the model without it, and so does this count."
        )
    if unknown:
        remarks.append(f"Not known here, and not in the count: {_names(unknown)}.")
    if read.config.get("quantization_config"):
        remarks.append(
            "The file says the weights are stored quantised. Counted are the parameters, not how they are stored."
        )
    return remarks


def _names(names: list[Any]) -> str:
    more = f" and {len(names) - 6} more" if len(names) > 6 else ""
    return ", ".join(shown(name) for name in names[:6]) + more
