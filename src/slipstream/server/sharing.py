"""What accounts let others have, and take from others: options, and what is wrong with them.

The words of errors are nats-server's; scripts that deploy a configuration look for them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import msgspec

from slipstream.wire.patterns import PatternTrie
from slipstream.wire.subject_pair import SubjectPair
from slipstream.wire.subjects import has_wildcard, is_pattern, is_subset
from slipstream.wire.transforms import TransformError

STREAM = "stream"
SERVICE = "service"
SINGLETON = "singleton"
RESPONSE_THRESHOLD = 120_000_000_000  # ns: two minutes


class ExportOptions(msgspec.Struct, kw_only=True):
    """A subject that other accounts may import."""

    kind: str = ""  # STREAM or SERVICE
    subject: str = ""
    accounts: list[str] | None = None  # who may import it; None is everybody
    response_type: str = SINGLETON  # or stream, chunked: any number of answers
    response_threshold: int = RESPONSE_THRESHOLD  # ns that an answer may take
    account_token_position: int = 0  # of the token that has to name the importing account; 0: none
    allow_trace: bool = False  # traces of messages go on in this account

    def is_open_to(self, account: str, subject: str) -> bool:
        """Whether `account` may import `subject` by this export."""
        if not is_subset(subject.encode(), self.subject.encode()):
            return False
        if self.account_token_position:
            tokens = subject.split(".")
            return tokens[self.account_token_position - 1] == account
        return self.accounts is None or account in self.accounts


class ImportOptions(msgspec.Struct, kw_only=True):
    """A subject of another account that is here, too."""

    kind: str = ""  # STREAM or SERVICE
    account: str = ""
    subject: str = ""  # there
    to: str = ""  # here; "" is the same
    prefix: str = ""  # of a stream: goes before its subject, where `to` is not given
    share: bool = False  # requests tell who the client is
    allow_trace: bool = False  # traces of messages of the stream go on in this account

    @property
    def local(self) -> str:
        """The subject in the importing account."""
        if self.to:
            return self.to
        return f"{self.prefix}.{self.subject}" if self.prefix else self.subject


class Sharing(Protocol):
    """The part of an account's options that is looked at here."""

    exports: list[ExportOptions]
    imports: list[ImportOptions]


def find_export(
    exports: Sequence[ExportOptions], wanted: ImportOptions, account: str
) -> ExportOptions | None:
    """The export by which `account` may have the import `wanted`: the one of just that subject, or
    else any that has it in it."""
    fitting = [
        export
        for export in exports
        if export.kind == wanted.kind and export.is_open_to(account, wanted.subject)
    ]
    exact = [export for export in fitting if export.subject == wanted.subject]
    return next(iter(exact or fitting), None)


def check_sharing(accounts: Mapping[str, Sharing]) -> Iterator[str]:
    """What is wrong with the exports and imports of all accounts."""
    for account in accounts.values():
        for export in account.exports:
            yield from _check_export(export, accounts)
    ours = _Imports(accounts)
    for name, account in accounts.items():
        seen: set[tuple[str, str, str]] = set()
        for wanted in account.imports:
            problem = _problem_of(name, wanted, accounts, seen)
            if not problem and ours.lead_back(name, wanted):
                problem = "import forms a cycle"
            if wanted.account not in accounts:
                yield f'"{wanted.account}" account not defined for {wanted.kind} import'
            elif problem:
                yield f'Error adding {wanted.kind} import "{wanted.subject}": {problem}'


def _check_export(export: ExportOptions, accounts: Mapping[str, Sharing]) -> Iterator[str]:
    for name in export.accounts or ():
        if name not in accounts:
            yield f'"{name}" account not defined for {export.kind} export'
    adding = f'Error adding {export.kind} export "{export.subject}"'
    if not is_pattern(export.subject.encode()):
        yield f"{adding}: invalid subject"
        return
    position = export.account_token_position
    tokens = export.subject.split(".")
    if position and not (1 <= position <= len(tokens) and tokens[position - 1] == "*"):
        yield f"{adding}: sublist: invalid subject, account_token_position {position} is no *"


def _problem_of(
    name: str,
    wanted: ImportOptions,
    accounts: Mapping[str, Sharing],
    seen: set[tuple[str, str, str]],
) -> str:
    """Why an account cannot have an import; "" if it can."""
    source = accounts.get(wanted.account)
    if source is None:
        return ""
    if has_wildcard(wanted.prefix.encode()):
        return "stream import prefix can not contain wildcard tokens"
    key = (wanted.kind, wanted.account, wanted.subject if wanted.kind == STREAM else wanted.local)
    if key in seen:
        return f"{wanted.kind} import already exists"
    seen.add(key)
    if find_export(source.exports, wanted, name) is None:
        return f"{wanted.kind} import not authorized"
    try:
        pair = SubjectPair(wanted.subject, wanted.local)
    except TransformError as error:
        sides = (wanted.subject, wanted.local)
        first, second = sides if wanted.kind == STREAM else sides[::-1]
        return (
            f"failed to create mapping transform for {wanted.kind} import subject from "
            f'"{first}" to "{second}": {error}'
        )
    if wanted.kind == STREAM and has_wildcard(pair.ours) and not has_wildcard(pair.theirs):
        return f'"{wanted.local}" has wildcards that the subject has not'
    return ""


class _Imports:
    """The imports of all accounts, by kind and account, to be found by the subject here."""

    def __init__(self, accounts: Mapping[str, Sharing]) -> None:
        self._tries: dict[tuple[str, str], PatternTrie] = {}
        for name, account in accounts.items():
            for wanted in account.imports:
                trie = self._tries.setdefault((wanted.kind, name), PatternTrie())
                try:
                    trie.insert(SubjectPair(wanted.subject, wanted.local).ours, wanted)
                except TransformError:
                    continue  # reported where it stands

    def lead_back(self, name: str, wanted: ImportOptions) -> bool:
        """Whether what account `name` takes by `wanted` comes from that account again. To import
        from oneself is to rename."""
        if wanted.account == name:
            return False
        todo = [wanted]
        seen = set()
        while todo:
            step = todo.pop()
            trie = self._tries.get((step.kind, step.account))
            if trie is None:
                continue
            for further in trie.overlapping(_pattern(step.subject)):
                if further.account == name:
                    return True
                key = (further.account, further.subject)
                if key not in seen:
                    seen.add(key)
                    todo.append(further)
        return False


def _pattern(subject: str) -> bytes:
    """The subject with wildcards for its references."""
    return b".".join(
        b"*" if token[:1] in (b"$", b"{") and token[1:2] in b"{0123456789" else token
        for token in subject.encode().split(b".")
    )
