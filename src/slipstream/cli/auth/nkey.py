"""`slipstream auth nkey`: keys in files, and what they sign."""

import base64
import re
from pathlib import Path
from typing import Annotated

import typer

from slipstream.cli.auth.private_files import read, write_asked
from slipstream.cli.global_options import UsageError
from slipstream.cli.message.text import json_field
from slipstream.cli.output import done, print_json
from slipstream.cli.prompts import Force
from slipstream.cli.session import new_app, wants_json
from slipstream.errors import ConfigError
from slipstream.wire.nkeys import KeyPair, new_seed, read_public, verify

app = new_app("NKeys: make them, and sign with them.")

KINDS = {
    "operator": "O",
    "account": "A",
    "user": "U",
    "server": "N",
    "cluster": "C",
    "curve": "X",
}
_SEED_BYTES = 32
_KEY = re.compile(r"\b(S[A-Z2-7]{57}|[OAUNCX][A-Z2-7]{55})\b")

KeyFile = Annotated[str, typer.Argument(metavar="KEY", help="The file with the NKey")]
DataFile = Annotated[Path, typer.Argument(metavar="FILE", help="The file to sign")]


@app.command("gen")
def gen(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="TYPE",
            help="user, account, operator, server, cluster, or curve, which encrypts",
        ),
    ],
    public: Annotated[bool, typer.Option("--public", help="Say the public key, too")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Write the key to a file")
    ] = None,
    entropy: Annotated[
        Path | None,
        typer.Option("--entropy", metavar="FILE", help="Take the 32 random bytes from here"),
    ] = None,
    force: Force = False,
) -> None:
    """Make an NKey."""
    letter = KINDS.get({"x25519": "curve"}.get(kind.lower(), kind.lower()))
    if letter is None:
        raise UsageError(f'nkey gen: "{kind}" is none of {", ".join(KINDS)}')
    key = KeyPair(new_seed(letter, _random(entropy) if entropy else b""))
    lines = [key.seed, *([key.public] if public else [])]
    if output is None:
        done("\n".join(lines), seed=key.seed, public=key.public)
        return
    write_asked(output, "\n".join(lines) + "\n", force)
    done("", file=str(output), public=key.public)


def _random(path: Path) -> bytes:
    with path.open("rb") as source:
        found = source.read(_SEED_BYTES)
    if len(found) < _SEED_BYTES:
        raise ConfigError(f"{path} has {len(found)} bytes; an NKey takes {_SEED_BYTES}")
    return found


def _key_in(path: str) -> str:
    found = _KEY.search(read(Path(path), "an NKey"))
    if found is None:
        raise ConfigError(
            f"{path} has no NKey: a seed has 58 characters and begins with S, "
            "a public key has 56 and begins with O, A, U, N, C or X"
        )
    return found[0]


def _pair(path: str, seed: str) -> KeyPair:
    try:
        return KeyPair(seed)
    except ConfigError as error:
        raise ConfigError(f"the NKey in {path} is damaged: {error}") from error


def _public(path: str) -> str:
    key = _key_in(path)
    if key.startswith("S"):
        return _pair(path, key).public
    try:
        read_public(key)
    except ConfigError as error:
        raise ConfigError(f"the NKey in {path} is damaged: {error}") from error
    return key


def _private(path: str) -> KeyPair:
    key = _key_in(path)
    if not key.startswith("S"):
        raise ConfigError(f"{path} has a public key only; a seed, which begins with S, signs")
    return _pair(path, key)


@app.command("show")
def show(key: KeyFile) -> None:
    """Show the public key of an NKey."""
    public = _public(key)
    done(public, public=public)


@app.command("sign")
def sign(file: DataFile, key: KeyFile) -> None:
    """Sign a file; the signature is printed in base64."""
    signature = base64.urlsafe_b64encode(_private(key).sign(file.read_bytes())).rstrip(b"=")
    done(signature.decode(), signature=signature.decode())


@app.command("verify")
@app.command("check", hidden=True)
def check(
    file: DataFile,
    signature: Annotated[
        Path, typer.Argument(metavar="SIGNATURE", help="The file with its signature")
    ],
    key: KeyFile,
) -> None:
    """Check the signature of a file; the key may be the public one."""
    text = read(signature, "a signature").strip()
    try:
        raw = base64.b64decode(
            text + "=" * (-len(text) % 4),
            altchars="-_" if set("-_") & set(text) else None,
            validate=True,
        )
    except ValueError as error:
        raise ConfigError(f"{signature} holds no signature in base64: {error}") from error
    public = _public(key)
    if not verify(public, raw, file.read_bytes()):
        raise ConfigError(
            f"the signature in {signature} is not that of {public} for {file}: "
            "the file was changed, or somebody else has signed it"
        )
    done("Verified OK", success=True, public=public)


Base64 = Annotated[bool, typer.Option("--b64/--no-b64", help="In base64, or the bytes themselves")]
Output = Annotated[Path | None, typer.Option("--output", metavar="FILE", help="Write it to a file")]


@app.command("encrypt", hidden=True)
@app.command("enc", hidden=True)
@app.command("seal")
def seal_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to encrypt")],
    key: KeyFile,
    recipient: Annotated[
        str, typer.Argument(metavar="RECIPIENT", help="Who may read it: a public key, X...")
    ],
    output: Output = None,
    b64: Base64 = True,
    force: Force = False,
) -> None:
    """Encrypt a file, for the owner of another key of TYPE curve."""
    from slipstream.cli.auth.sealed import seal

    sealed = seal(file.read_bytes(), _private(key), recipient)
    _give(base64.b64encode(sealed) if b64 else sealed, output, force, end="\n" if b64 else "")


@app.command("decrypt", hidden=True)
@app.command("dec", hidden=True)
@app.command("open", hidden=True)
@app.command("unseal")
def unseal_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `seal` has written")],
    key: KeyFile,
    sender: Annotated[
        str, typer.Argument(metavar="SENDER", help="Who has sealed it: a public key, X...")
    ],
    output: Output = None,
    b64: Base64 = True,
    force: Force = False,
) -> None:
    """Decrypt a file that the owner of another key has sealed."""
    from slipstream.cli.auth.sealed import from_base64, unseal

    data = file.read_bytes()
    sealed = from_base64(data, str(file)) if b64 else data
    _give(unseal(sealed, _private(key), sender, str(file)), output, force)


def _give(data: bytes, output: Path | None, force: bool, end: str = "") -> None:
    if output is not None:
        write_asked(output, data, force)
        done("", file=str(output))
    elif wants_json():
        print_json(json_field("data", data))
    else:
        typer.echo(data + end.encode(), nl=False)
