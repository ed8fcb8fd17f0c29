"""Write docs/api.md from the comments of proto/tandem/v1/tandem.proto.

    python packaging/generate_api_docs.py

The comments come from the descriptors that protoc makes; it is the protoc of generate_stubs.py.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)

import generate_stubs

OUTPUT = Path(__file__).resolve().parent.parent / "docs"
NAME = "api.md"
PROTO = generate_stubs.PROTOS[0]

PREFACE = """\
# The gRPC API

Made from `proto/tandem/v1/tandem.proto` by `python packaging/generate_api_docs.py`; do not edit.
[protocol.md](protocol.md#rpc) describes the login, who may do what, limits and errors. All of it is
available in Python as [`Client`](python.md), and in a shell as [`tandem`](cli.md). The package is
`tandem.v1`; sizes and times have their unit in the name, or are a `Duration` or `Timestamp` of
`google.protobuf`. The number after a field's name is its number on the wire.
"""
# Field numbers in google/protobuf/descriptor.proto; paths of source locations consist of them.
MESSAGES, ENUMS, SERVICES = 4, 5, 6
FIELDS, NESTED, NESTED_ENUMS = 2, 3, 4  # in a message
VALUES = METHODS = 2  # in an enumeration, in a service
Place = tuple[int, ...]


def generate(folder: Path) -> None:
    """Write the page into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    file = described()
    page = Page(file)
    text = "\n".join([PREFACE, *page.services(), *page.messages(), *page.enums()])
    (folder / NAME).write_text(text.rstrip("\n") + "\n")


def described() -> FileDescriptorProto:
    """Let protoc parse the file; return its descriptor, comments included."""
    python = generate_stubs.generator_python()
    proto = Path(PROTO)
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / "descriptors"
        command = [str(python), "-m", "grpc_tools.protoc", f"-I{proto.parent}", proto.name]
        options = ["--include_source_info", f"--descriptor_set_out={made}"]
        subprocess.run([*command, *options], check=True, cwd=generate_stubs.ROOT)
        return FileDescriptorSet.FromString(made.read_bytes()).file[0]


class Page:
    """One proto file's services, messages and enumerations in Markdown."""

    def __init__(self, file: FileDescriptorProto) -> None:
        self._file = file
        self._prefix = f".{file.package}."
        self._comments = {
            tuple(location.path): _plain((location.leading_comments, location.trailing_comments))
            for location in file.source_code_info.location
        }

    def services(self) -> Iterator[str]:
        """Yield each service with a table of its calls."""
        for number, service in enumerate(self._file.service):
            yield from self._section(f"## {service.name}", (SERVICES, number))
            yield self._calls(service, (SERVICES, number))

    def messages(self) -> Iterator[str]:
        """Yield each message with a table of its fields."""
        yield "## Messages\n"
        for number, message in enumerate(self._file.message_type):
            yield from self._message(message, message.name, (MESSAGES, number))

    def enums(self) -> Iterator[str]:
        """Yield each top-level enumeration with a table of its values."""
        yield "## Enumerations\n"
        for number, enum in enumerate(self._file.enum_type):
            yield from self._enum(enum, enum.name, (ENUMS, number))

    def _section(self, title: str, place: Place) -> Iterator[str]:
        yield f"{title}\n"
        if told := self._comments.get(place):
            yield f"{_sentence(told)}\n"

    def _calls(self, service: ServiceDescriptorProto, place: Place) -> str:
        rows = []
        for number, call in enumerate(service.method):
            told = self._told(*place, METHODS, number)
            if not told:
                raise SystemExit(f"{PROTO}: {call.name} has no comment, which is its line here")
            request, answer = self._link(call.input_type), self._answer(call)
            rows.append(f"| `{call.name}` | {request} | {answer} | {told} |")
        return _table("| call | request | answer | what it does |", rows)

    def _answer(self, call: MethodDescriptorProto) -> str:
        return f"{'stream of ' * call.server_streaming}{self._link(call.output_type)}"

    def _message(self, message: DescriptorProto, name: str, place: Place) -> Iterator[str]:
        yield from self._section(f"### {name}", place)
        entries = {each.name: each for each in message.nested_type if each.options.map_entry}
        rows = []
        for number, field in enumerate(message.field):
            kind = f"{self._type(field, entries)}{_one_of(field, message)}"
            told = self._told(*place, FIELDS, number)
            rows.append(f"| `{field.name}` {field.number} | {kind} | {told} |")
        yield _table("| field | type | meaning |", rows) if rows else "No fields.\n"
        for number, inner in enumerate(message.nested_type):
            if inner.name not in entries:
                yield from self._message(inner, f"{name}.{inner.name}", (*place, NESTED, number))
        for number, enum in enumerate(message.enum_type):
            yield from self._enum(enum, f"{name}.{enum.name}", (*place, NESTED_ENUMS, number))

    def _enum(self, enum: EnumDescriptorProto, name: str, place: Place) -> Iterator[str]:
        yield from self._section(f"### {name}", place)
        rows = [
            f"| `{value.name}` {value.number} | {self._told(*place, VALUES, number)} |"
            for number, value in enumerate(enum.value)
        ]
        yield _table("| value | meaning |", rows)

    def _type(self, field: FieldDescriptorProto, entries: dict[str, DescriptorProto]) -> str:
        if entry := entries.get(field.type_name.rpartition(".")[2]):
            key, value = (self._one_type(part) for part in entry.field)
            return f"map of {key} to {value}"
        kind = self._one_type(field)
        if field.label == FieldDescriptorProto.LABEL_REPEATED:
            return f"list of {kind}"
        return f"{kind}, optional" if field.proto3_optional else kind

    def _one_type(self, field: FieldDescriptorProto) -> str:
        if field.type_name:
            return self._link(field.type_name)
        return FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_").lower()

    def _link(self, type_name: str) -> str:
        if not type_name.startswith(self._prefix):
            return f"`{type_name.rpartition('.')[2]}`"
        name = type_name.removeprefix(self._prefix)
        return f"[{name}](#{name.replace('.', '').lower()})"

    def _told(self, *place: int) -> str:
        return self._comments.get(place, "")


def _one_of(field: FieldDescriptorProto, message: DescriptorProto) -> str:
    """Name the oneof that the field belongs to, if any."""
    if field.proto3_optional or not field.HasField("oneof_index"):
        return ""
    return f", one of `{message.oneof_decl[field.oneof_index].name}`"


def _plain(comments: Iterable[str]) -> str:
    """Join the comments in one line, with characters escaped that mean something in a table."""
    words = " ".join(" ".join(comments).split())
    return words.replace("|", "\\|").replace("<", "&lt;")


def _sentence(told: str) -> str:
    return told if told.endswith(".") else f"{told}."


def _table(head: str, rows: list[str]) -> str:
    return "\n".join([head, "|---" * (head.count("|") - 1) + "|", *rows, ""])


if __name__ == "__main__":
    generate(OUTPUT)
