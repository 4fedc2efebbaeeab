"""Private keys in files, laid out as nsc and the `nats` tool do, so that each reads the others'.

``keys/<kind>/<two letters>/<public key>.nk`` holds a seed, where the kind is the first letter of
the public key and the two letters are the next; ``creds/<operator>/<account>/<user>.creds`` holds
the credentials of a user (nsc 2.15.0).
"""

import shutil
from pathlib import Path

from slipstream.cli.auth.private_files import make_directory, read, write
from slipstream.errors import ConfigError
from slipstream.wire.nkeys import KeyPair

_IGNORED = "# Secrets: for no repository.\n**/*.nk\n**/*.creds\n"


class KeyStore:
    """The private keys below a directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def add(self, seed: str) -> KeyPair:
        """Store a key."""
        key = KeyPair(seed)
        path = self._path(key.public)
        assert path is not None
        for folder in (path.parent, self._root / "creds"):
            make_directory(folder)
        ignored = self._root / ".gitignore"
        if not ignored.exists():
            write(ignored, _IGNORED)
        write(path, key.seed)
        return key

    def get(self, public: str) -> KeyPair | None:
        """The key pair of a public key; None if only the public key is known, or it is none.

        Raises `ConfigError` if its file is damaged.
        """
        path = self._path(public)
        if path is None or not path.exists():
            return None
        try:
            key = KeyPair(read(path, "the private key"))
        except ConfigError as error:
            raise ConfigError(f"the key file {path} is damaged: {error}") from error
        if key.public != public:
            raise ConfigError(f"the key file {path} is damaged: it has the key of {key.public}")
        return key

    def remove(self, public: str) -> None:
        """Forget a key, if it is there."""
        path = self._path(public)
        if path is None:
            return
        path.unlink(missing_ok=True)
        if path.parent.is_dir() and not any(path.parent.iterdir()):
            path.parent.rmdir()

    def write_credentials(self, operator: str, account: str, user: str, text: str) -> None:
        """Keep a user's credentials."""
        path = self._credentials(operator, account, user)
        make_directory(path.parent)
        write(path, text)

    def remove_credentials(self, operator: str, account: str = "", user: str = "") -> None:
        """Forget the credentials of a user, of an account's users, or of an operator's."""
        if user:
            self._credentials(operator, account, user).unlink(missing_ok=True)
        else:
            shutil.rmtree(self._root / "creds" / operator / account, ignore_errors=True)

    def _path(self, public: str) -> Path | None:
        if not public.isalnum() or len(public) < 3:  # a JWT may say anything
            return None
        return self._root / "keys" / public[0] / public[1:3] / f"{public}.nk"

    def _credentials(self, operator: str, account: str, user: str) -> Path:
        return self._root / "creds" / operator / account / f"{user}.creds"
