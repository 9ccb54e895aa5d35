"""A YAML file becomes a model, or one error that names every mistake with its key, line, value and remedy."""

from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field, ValidationError, field_validator, model_validator

from fedmed.errors import JobError
from fedmed.settings.yaml_model import Contradictions, Document, InWords, YamlModel, check_model, read_yaml

EXAMPLE = "    rounds: 3\n"


class Person(YamlModel):
    name: str
    role: Literal["lead", "member"] = "member"


class Limits(YamlModel):
    bound: float | None = Field(None, gt=0)
    share: float = Field(0.5, gt=0, lt=1)


class Study(YamlModel):
    rounds: int = Field(3, ge=1)
    steps: int | str = 1
    code: Annotated[str, Field(pattern="^[a-z]+$"), InWords("small letters")] = "a"
    either: str | dict[Literal["lead", "member"], str] = ""
    active: bool = False
    people: tuple[Person, ...] = ()
    limits: Limits = Limits()
    others: dict[str, Limits | None] = {}
    patterns: tuple[str, ...] = ()
    folder: Path = Path()
    free: dict[str, object] = {}

    @field_validator("folder")
    @classmethod
    def _is_short(cls, folder, info):
        if len(str(folder)) > (info.context or {}).get("longest", 9):
            raise ValueError("choose a shorter one")
        return folder

    @model_validator(mode="after")
    def _fits(self):
        if self.active and self.rounds == 1:
            active, rounds = "'active' needs 'rounds' of 2", "'rounds' is 1, and 'active' is true"
            raise Contradictions([("active", active), ("rounds", rounds)])
        return self


@pytest.fixture
def read(tmp_path):
    def read(text, **context):
        path = tmp_path / "study.yaml"
        path.write_text(text)
        facts = {"error": JobError, "example": EXAMPLE}
        return check_model(read_yaml(path, **facts), Study, **facts, context=context)

    return read


def wrong(read, text):
    with pytest.raises(JobError) as caught:
        read(text)
    return str(caught.value).split(". Example:")[0].split("\nExample:")[0]


def test_a_right_file_becomes_a_model_that_does_not_change(read):
    study = read("rounds:\npeople:\n- name: a\n  role: lead\npatterns: [x, y]\nfolder: data\nfree: {a: null}\n")
    assert study.rounds == 3 and study.people == (Person(name="a", role="lead"),)
    assert read("limits: {share: }\nothers: {a: {share: }, b: }").others == {"a": Limits(), "b": None}
    assert study.patterns == ("x", "y") and study.folder == Path("data") and study.free == {"a": None}
    with pytest.raises(ValidationError, match="frozen"):
        study.rounds = 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("round: 2", "line 1: unknown key 'round'; did you mean 'rounds'? Known: active, code, either, f"),
        (
            "rounds: 2\nlimits:\n  bund: 2",
            "line 3: unknown key 'limits.bund'; did you mean 'bound'? Known: bound, share",
        ),
        ("xyz: 2", "line 1: unknown key 'xyz'; Known: active"),
        ("rounds: 0", "line 1: key 'rounds' is 0; it must be at least 1"),
        ("rounds: '3'", "key 'rounds' is '3' (write it without quotes); it must be a whole number"),
        ("rounds: 2.5", "key 'rounds' is 2.5; it must be a whole number"),
        ("rounds: true", "key 'rounds' is True; it must be a whole number"),
        ("steps: [1]", "key 'steps' is [1]; it must be a whole number, or a text"),
        ("active: 'true'", "key 'active' is 'true'; it must be true or false"),
        ("code: A", "key 'code' is 'A'; it must be small letters"),
        ("either: {head: a}", "line 1: key 'either.head' has a wrong name; it must be 'lead' or 'member'"),
        ("either: {lead: 3}", "key 'either.lead' is 3 (write it in quotes); it must be a text"),
        ("free: {no: 1}", "line 1: key False is not a text (YAML takes no, on and the like for truth values); write"),
        ("active: 1", "key 'active' is 1; it must be true or false"),
        ("limits: none", "key 'limits' is 'none'; it must be 'key: value' lines"),
        ("limits: {bound: 1e-5}", "key 'limits.bound' is '1e-5' (YAML takes it for a text; write 0.00001); it must be"),
        ("limits: {bound: 1e-2}", "YAML takes it for a text; write 0.01)"),
        ("limits: {bound: .inf}", "key 'limits.bound' is inf; it must be a finite number"),
        ("limits: {bound: .nan}", "key 'limits.bound' is nan; it must be"),
        ("limits:\n  share: 1", "line 2: key 'limits.share' is 1; it must be below 1"),
        ("patterns: x", "key 'patterns' is 'x'; it must be a list"),
        ("patterns:\n- x\n- 3", "line 3: entry 2 of 'patterns' is 3 (write it in quotes); it must be a text"),
        ("people: [{role: lead}]", "line 1: key 'name' of entry 1 of 'people' is missing"),
        (
            "people: [{name: a, rule: b}]",
            "unknown key 'rule' of entry 1 of 'people'; did you mean 'role'? Known: name, role",
        ),
        ("people: [{name: a, role: head}]", "is 'head'; it must be 'lead' or 'member'"),
        ("folder: long/enough/to/fail", "key 'folder' is 'long/enough/to/fail'; choose a shorter one"),
        ("rounds: 2\n\nrounds: 3", "line 3: key 'rounds' occurs twice, in line 1 and here; remove one"),
        ("people:\n- name: a\n  name: b", "line 3: key 'name' occurs twice"),
        ("a: [1, 2\nb: 3", "line 2: not a readable YAML file (did not find expected ',' or ']'"),
        ("- a\n- b", "holds a list; it must hold 'key: value' lines"),
        ("", "is empty; it must hold"),
        ("free: &x\n  a: *x", "cannot be used (Circular reference"),
    ],
)
def test_each_mistake_is_said_with_key_line_value_and_remedy(read, text, said, tmp_path):
    message = wrong(read, text)
    assert said in message and len(message.splitlines()) == 1
    assert message.startswith(f"{tmp_path / 'study.yaml'}")


def test_all_mistakes_are_said_at_once_in_the_order_of_the_file(read):
    text = "people:\n- role: head\nlimits:\n  share: 7\n  bound: 0\nround: 2\n"
    first, *lines = wrong(read, text).splitlines()
    assert first.endswith("study.yaml: 5 mistakes:")
    assert [line.split(":")[0] for line in lines] == ["  line 2", "  line 2", "  line 4", "  line 5", "  line 6"]
    assert "rounds: 3" in str(pytest.raises(JobError, read, text).value)


def test_contradictions_are_said_together(read):
    first, *lines = wrong(read, "rounds: 1\nactive: true\n").splitlines()
    assert first.endswith("2 mistakes:")
    assert lines == ["  line 1: 'rounds' is 1, and 'active' is true", "  line 2: 'active' needs 'rounds' of 2"]


def test_values_from_elsewhere_and_the_context_of_validators():
    document = Document("--set", {"folder": Path("0123456789")})
    study = check_model(document, Study, error=JobError, context={"longest": 10})
    assert study.folder == Path("0123456789")
    with pytest.raises(JobError, match="^--set: key 'folder' is '0123456789'; choose a shorter one$"):
        check_model(Document("--set", {"folder": "0123456789"}), Study, error=JobError)


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xfe\x00")
    for name in ("x", "nothing"):
        with pytest.raises(JobError, match=f"{name}: not a readable YAML file"):
            read_yaml(tmp_path / name, error=JobError)


def test_merged_keys_are_no_duplicates(tmp_path):
    (tmp_path / "x").write_text("base: &b {a: 1}\nmore: {<<: *b, a: 2}\n")
    assert read_yaml(tmp_path / "x", error=JobError).values["more"] == {"a": 2}
