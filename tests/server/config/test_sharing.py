"""Exports and imports in a file: nats-server accepts or refuses the same, in the same words."""

import re
import subprocess
from pathlib import Path

import pytest

from slipstream.errors import ConfigError
from slipstream.server.config import check_file
from tests.fix_nats_server import find_nats_server

# Accounts, each on a line; the names of subjects that hold a dot or a wildcard are in quotes.
ACCOUNTS = [
    "A{}\nB{imports:[{stream:{account:X,subject:foo}}]}",
    "A{}\nB{imports:[{stream:{account:A,subject:foo}}]}",
    "A{}\nB{imports:[{service:{account:A,subject:foo}}]}",
    "A{exports:[{stream:foo,accounts:[C]}]}\nB{imports:[{stream:{account:A,subject:foo}}]}\nC{}",
    "A{exports:[{service:foo,accounts:[C]}]}\nB{imports:[{service:{account:A,subject:foo}}]}\nC{}",
    "A{exports:[{stream:foo,accounts:[Z]}]}",
    "A{exports:[{stream:foo}]}\nB{imports:[{stream:{subject:foo}}]}",
    "A{exports:[{stream:foo}]}\nB{imports:[{stream:{account:A}}]}",
    "A{exports:[{stream:foo}]}\nB{imports:[{stream:{account:A,subject:foo,bla:1}}]}",
    "A{exports:[{stream:foo}]}\nB{imports:[{stream:{account:A,subject:foo},bla:1}]}",
    "A{exports:[{service:foo}]}\nB{imports:[{service:{account:A,subject:foo},prefix:x}]}",
    "A{exports:[{stream:foo}]}\nB{imports:[{stream:{account:A,subject:foo},prefix:'x.*'}]}",
    "A{exports:[{stream:foo}]}\nB{imports:[{stream:{account:A,subject:foo}},{stream:{account:A,subject:foo}}]}",
    "A{exports:[{service:foo}]}\nB{imports:[{service:{account:A,subject:foo}},{service:{account:A,subject:foo}}]}",
    "A{exports:[{service:foo},{service:bar}]}\nB{imports:[{service:{account:A,subject:foo},to:x},{service:{account:A,subject:bar},to:x}]}",
    "A{exports:[{service:foo}]}\nC{exports:[{service:foo}]}\nB{imports:[{service:{account:A,subject:foo}},{service:{account:C,subject:foo}}]}",
    "A{exports:[{stream:foo},{service:bar}],imports:[{stream:{account:A,subject:foo}}]}",
    "A{exports:[{stream:foo},{service:bar}],imports:[{service:{account:A,subject:bar}}]}",
    "A{exports:[{stream:foo},{service:bar}],imports:[{service:{account:A,subject:bar},to:q}]}",
    "A{exports:[{stream:foo}],imports:[{stream:{account:A,subject:foo},to:q}]}",
    "A{exports:[{service:help}],imports:[{service:{account:B,subject:help}}]}\nB{exports:[{service:help}],imports:[{service:{account:A,subject:help}}]}",
    "A{exports:[{service:help}],imports:[{service:{account:B,subject:help}}]}\nB{exports:[{service:help}],imports:[{service:{account:C,subject:help}}]}\nC{exports:[{service:help}],imports:[{service:{account:A,subject:help}}]}",
    "A{exports:[{stream:help}],imports:[{stream:{account:B,subject:help}}]}\nB{exports:[{stream:help}],imports:[{stream:{account:A,subject:help}}]}",
    "A{exports:[{stream:'a.>'}],imports:[{stream:{account:B,subject:'b.>'},to:'a.>'}]}\nB{exports:[{stream:'b.>'}],imports:[{stream:{account:A,subject:'a.>'},to:'b.>'}]}",
    "A{exports:[{service:'h.*'}],imports:[{service:{account:B,subject:'h.*'}}]}\nB{exports:[{service:'h.>'}],imports:[{service:{account:A,subject:'h.a'},to:'h.b'}]}",
    "A{exports:[{stream:'foo.*'}]}\nB{imports:[{stream:{account:A,subject:'foo.*'},to:'x.*.*'}]}",
    "A{exports:[{stream:'foo.*.*'}]}\nB{imports:[{stream:{account:A,subject:'foo.*.*'},to:'x.$2.$1'}]}",
    "A{exports:[{stream:'foo.*.*'}]}\nB{imports:[{stream:{account:A,subject:'foo.*.*'},to:'x.$2'}]}",
    "A{exports:[{stream:'foo.*.*'}]}\nB{imports:[{stream:{account:A,subject:'foo.*.*'},to:'x.$3.$1'}]}",
    "A{exports:[{stream:'foo.*'}]}\nB{imports:[{stream:{account:A,subject:'foo.*'},to:'x'}]}",
    "A{exports:[{service:'foo.*'}]}\nB{imports:[{service:{account:A,subject:'foo.*'},to:'x'}]}",
    "A{exports:[{service:'foo.*.*'}]}\nB{imports:[{service:{account:A,subject:'foo.*.*'},to:'x.$2.$1'}]}",
    "A{exports:[{service:'foo.*.*'}]}\nB{imports:[{service:{account:A,subject:'foo.$2.$1'},to:'x.*.*'}]}",
    "A{exports:[{service:'foo.>'}]}\nB{imports:[{service:{account:A,subject:'foo.>'},to:'x.*'}]}",
    "A{exports:[{stream:'foo.*'}]}\nB{imports:[{stream:{account:A,subject:'foo.*'},to:'x.{{partition(3,1)}}'}]}",
    "A{exports:[{stream:'foo.*'}]}\nB{imports:[{stream:{account:A,subject:'foo.*'},to:'x.{{wildcard(1)}}'}]}",
    "A{exports:[{service:foo,response_type:bla}]}",
    "A{exports:[{stream:foo,response_type:stream}]}",
    "A{exports:[{service:foo,threshold:'x'}]}",
    "A{exports:[{threshold:'5s',service:foo,response:chunked}]}",
    "A{exports:[{service:'foo.*',account_token_position:2}]}\nB{imports:[{service:{account:A,subject:'foo.B'}}]}",
    "A{exports:[{service:'foo.*',account_token_position:2}]}\nB{imports:[{service:{account:A,subject:'foo.C'}}]}",
    "A{exports:[{service:'foo.*',account_token_position:2}]}\nB{imports:[{service:{account:A,subject:'foo.*'}}]}",
    "A{exports:[{service:'foo.*',account_token_position:1}]}",
    "A{exports:[{service:'foo.*',account_token_position:3}]}",
    "A{exports:[{service:'foo.*',accounts:[B],account_token_position:2}]}\nB{}",
    "A{exports:[{stream:'foo.*',account_token_position:2}]}\nB{imports:[{stream:{account:A,subject:'foo.B'}}]}",
    "A{exports:[{service:'foo.>',account_token_position:2}]}",
    "A{exports:[{stream:foo}]}\nB{imports:[{stream:{account:A,subject:foo},share:true}]}",
    "A{exports:[{service:foo}]}\nB{imports:[{share:true,service:{account:A,subject:foo}}]}",
    "A{exports:[{service:foo}]}\nB{imports:[{service:{account:A,subject:foo},allow_trace:true}]}",
    "A{exports:[{stream:foo,allow_trace:true}]}",
    "A{exports:[{service:foo,allow_trace:true}]}",
    "A{exports:[{service:foo,advertise:true}]}",
    "A{exports:[{service:foo,bla:true}]}",
    "A{exports:[{service:foo},{service:foo}]}",
    "A{exports:[{service:'foo.>'},{service:bar}]}\nB{imports:[{service:{account:A,subject:'foo.>'},to:'x.>'},{service:{account:A,subject:bar},to:'x.bar'}]}",
    "A{exports:[{stream:'foo.>'}]}\nB{imports:[{stream:{account:A,subject:'foo.>'}},{stream:{account:A,subject:'foo.*'}}]}",
    "A{exports:[{stream:'foo.>'}]}\nB{imports:[{stream:{account:A,subject:'foo.a'},to:x},{stream:{account:A,subject:'foo.b'},to:x}]}",
    "A{exports:[{stream:'foo'}]}\nB{imports:[{stream:{account:A,subject:'foo'},to:x},{stream:{account:A,subject:'foo'},to:y}]}",
    "A{exports:[{stream:foo,accounts:[B,B]}]}\nB{}",
    "A{imports:[{stream:{account:'$SYS',subject:'$SYS.>'}}]}",
    "A{imports:[{stream:{account:'$G',subject:'foo'}}]}",
    "B{jetstream:enabled,imports:[{service:{account:A,subject:'$JS.API.>'}}]}\nA{jetstream:enabled,exports:[{service:'$JS.API.>'}]}",
    "A{exports:[{stream:'foo.*'}]}\nB{imports:[{stream:{account:A,subject:'foo.>'}}]}",
    "A{exports:[{stream:'foo.>'}]}\nB{imports:[{stream:{account:A,subject:'foo.>'},to:'x'}]}",
    "A{exports:[{stream:'>'}],imports:[{stream:{account:B,subject:'>'},prefix:b}]}\nB{exports:[{stream:'>'}],imports:[{stream:{account:A,subject:'>'},prefix:a}]}",
    "A{exports:[{stream:'x.>'}],imports:[{service:{account:B,subject:'y.>'}}]}\nB{exports:[{service:'y.>'}],imports:[{stream:{account:A,subject:'x.>'}}]}",
]

# What is refused here; there by chance, in words that the order of a map decides, or not at all.
STRICTER = {
    "A{exports:[{stream:foo,service:bar}]}": 'Detected service "bar" but already saw a stream',
    (
        "A{exports:[{stream:foo},{service:bar}]}\n"
        "B{imports:[{stream:{account:A,subject:foo},service:{account:A,subject:bar}}]}"
    ): "Detected service but already saw a stream",
    "A{exports:[{stream:foo,threshold:'5s'}]}": "Detected response directive on non-service",
    "A{exports:[{stream:foo}]}\nB{imports:[{stream:{account:A,subject:foo},prefix:x,to:y}]}": (
        "Stream import can not have a 'prefix' and a 'to' property"
    ),
    "A{exports:[{accounts:[A]}]}": 'an entry needs a "stream" or a "service"',
    "A{}\nB{imports:[{to:x}]}": 'an entry needs a "stream" or a "service"',
    "A{exports:[{stream:'foo..bar'}]}": "invalid subject",
    "A{exports:[{service:foo,latency:x}]}": "not supported yet",
    "A{exports:[{stream:foo}]}\nB{imports:[{stream:{account:A,subject:foo},to:'x..y'}]}": (
        "not a valid subject"
    ),
}


def written(accounts: str) -> str:
    """The short form as a file that nats-server's grammar takes."""
    parts = re.split(r"('[^']*')", accounts)
    for i, part in enumerate(parts):
        if not part.startswith("'"):
            part = re.sub(r"([\[\]{}])", r" \1 ", part)
            parts[i] = part.replace(",", "\n").replace(":", ": ")
    lines = re.sub(r"(\w) +([\]}])", r"\1\n\2", "".join(parts))
    return f"port: -1\naccounts {{\n{lines}\n}}\n"


def refusals(path: Path) -> list[str]:
    """What is wrong with a file, without the places."""
    try:
        check_file(str(path))
    except ConfigError as error:
        return [re.sub(r"^\S+:\d+:\d+: ", "", line) for line in str(error).split("\n")]
    return []


@pytest.mark.parametrize("accounts", ACCOUNTS)
def test_a_file_is_accepted_or_refused_in_the_same_words(accounts: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(written(accounts))
    command = [find_nats_server(), "-t", "-c", str(path)]
    theirs = subprocess.run(command, capture_output=True, text=True, check=False)
    ours = refusals(path)
    if theirs.returncode == 0:
        assert ours == []
        return
    said = theirs.stderr.strip().split(".conf:", 1)[1].split(": ", 1)[1]
    said = said.replace(", got int64", "").replace(", got string", "")
    assert any(said in line for line in ours), (said, ours)


@pytest.mark.parametrize("accounts", STRICTER)
def test_what_makes_no_sense_is_refused(accounts: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(written(accounts))
    [line] = refusals(path)
    assert STRICTER[accounts] in line


@pytest.mark.parametrize(
    ("directive", "text"),
    [
        ("exports: { stream: foo }", "Exports should be an array"),
        ("exports: [ foo ]", "Export Items should be a map with type entry"),
        ("imports: { stream: foo }", "Imports should be an array"),
        ("imports: [ foo ]", "Import Items should be a map with type entry"),
        ("imports: [ { stream: foo } ]", "Stream entry should be an account map"),
        ("exports: [ { service: foo, threshold: 5 } ]", "Expected response threshold to be"),
        ("exports: [ { service: foo, accounts: B } ]", "expected a list of accounts"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(directive: str, text: str, tmp_path: Path) -> None:
    path = tmp_path / "server.conf"
    path.write_text(f"accounts {{ A {{ {directive} }} }}\n")
    [line] = refusals(path)
    assert text in line
