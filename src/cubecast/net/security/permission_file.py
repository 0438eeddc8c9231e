"""Permissions from a file: read strictly, or refused in one line that names the file and the key.

The rules and the tokens are in two files, because the tokens are secret::

    tokens_file = "tokens.toml"

    [[rule]]
    who = "client:alice"
    publish = ["chat/+", "presence/{name}"]
    subscribe = ["chat/#"]

The file of tokens has a line for each client, ``alice = "…"``; `cubecast token alice` prints one.
"""

from __future__ import annotations

import difflib
import logging
import re
import stat
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from cubecast.errors import ConfigError
from cubecast.net.security.keys import MIN_TOKEN, new_secret
from cubecast.net.security.permissions import NAME, PermissionRule, Permissions, RuleSubject
from cubecast.net.topics import check_name
from cubecast.protocol.subscriptions.patterns import Pattern

log = logging.getLogger("cubecast")

MAX_FILE_BYTES = 1024 * 1024
MAX_RULES = 4096
TOKEN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
WRITTEN_KEY = re.compile(r"""\s*["']?([A-Za-z0-9._@-]+)["']?\s*=""")
FILE_KEYS = ("rule", "tokens_file")
RULE_KEYS = ("who", "publish", "subscribe", "deny")
READ_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH

Signature = tuple[tuple[int, int, int] | None, ...]
"""Time of writing, length and inode of each file; None: the file is missing."""


def read_permissions(path: str | Path, *, warn: bool = True) -> Permissions:
    """The rules of a file with the tokens it names; `ConfigError` if the file is invalid.

    `warn`: say in the log if others can read the tokens.
    """
    path = Path(path)
    values = _toml(path)
    _check_keys(values, FILE_KEYS, f"{path}: ")
    rules = values.get("rule", [])
    if not isinstance(rules, list) or not all(isinstance(rule, dict) for rule in rules):
        raise ConfigError(f"{path}: rule must be a list of tables: write [[rule]], not [rule]")
    if not rules:
        raise ConfigError(f"{path}: there is no [[rule]], so nothing is allowed: add one")
    if len(rules) > MAX_RULES:
        raise ConfigError(f"{path}: there are {len(rules)} rules, and {MAX_RULES} at most")
    read = [_rule(number, rule, path) for number, rule in enumerate(rules, 1)]
    tokens_path = _tokens_path(values, path)
    if tokens_path is None:
        return Permissions(read, {}, [path])
    tokens = _tokens(tokens_path)
    if warn:
        _warn_of_readers(tokens_path)
    return Permissions(read, tokens, [path, tokens_path])


def signature(files: Iterable[Path]) -> Signature:
    """Something that changes when one of the files does."""
    return tuple(map(_stat, files))


def _stat(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def token_line(name: str) -> str:
    """A line for the file of tokens, with a token that cannot be guessed."""
    check_token_name(name)
    key = name if BARE_KEY.fullmatch(name) else f'"{name}"'
    return f'{key} = "{new_secret()}"'


def check_token_name(name: str) -> None:
    """ValueError, in one line, unless a client may have this name."""
    if not TOKEN_NAME.fullmatch(name):
        raise ValueError(
            f"a name has 1 to 64 letters, digits, dots, '@', '-' or '_' and begins with a letter "
            f"or a digit, not {name!r}"
        )


# -- reading --------------------------------------------------------------------------------------


def _toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            data = stream.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(data) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: is larger than {MAX_FILE_BYTES} bytes")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        twice = _written_twice(data, str(error))
        if twice:
            raise ConfigError(f"{path}: {twice}; keep one of them") from None
        raise ConfigError(f"{path}: not TOML: {error}") from None


def _written_twice(data: bytes, error: str) -> str:
    """Which key has two lines, if that is the error (a token added twice, say); else empty."""
    found = re.search(r"overwrite a value \(at (?:line (\d+)|end of document)", error)
    if found is None:
        return ""
    lines = data.decode("utf-8-sig").split("\n")
    number = int(found[1] or len(lines))
    key = WRITTEN_KEY.match(lines[number - 1])
    return "" if key is None else f"{key[1]} occurs twice, the second time in line {number}"


def _check_keys(values: Iterable[str], known: tuple[str, ...], where: str) -> None:
    for key in values:
        if key == "tokens":
            raise ConfigError(
                f"{where}tokens belong in a file of their own: tokens_file = 'tokens.toml'"
            )
        if key not in known:
            near = difflib.get_close_matches(key, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(known)}"
            raise ConfigError(f"{where}{key} is no key of permissions{hint}")


def _rule(number: int, values: dict[str, Any], path: Path) -> PermissionRule:
    where = f"{path}: rule {number}: "
    _check_keys(values, RULE_KEYS, where)
    if "who" not in values:
        raise ConfigError(f"{where}who is missing")
    who = values["who"]
    names = _texts([who] if isinstance(who, str) else who, f"{where}who")
    if not names:
        raise ConfigError(f"{where}who is empty: name a client or a node")
    if len(values) == 1:
        raise ConfigError(f"{where}says nothing: it needs publish, subscribe or deny")
    lists = {key: _patterns(values.get(key, []), f"{where}{key}") for key in RULE_KEYS[1:]}
    try:
        return PermissionRule(number, tuple(map(RuleSubject, names)), **lists)
    except ValueError as error:
        raise ConfigError(f"{where}who {error}") from None


def _texts(value: object, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ConfigError(f"{where} must be a list of texts, not {value!r}")
    twice = next((one for one in value if value.count(one) > 1), None)
    if twice is not None:
        raise ConfigError(f"{where} has {twice!r} twice")
    return tuple(value)


def _patterns(value: object, where: str) -> tuple[str, ...]:
    texts = _texts(value, where)
    for text in texts:
        plain = text.replace(NAME, "name")
        try:
            if "{" in plain or "}" in plain:
                raise ValueError(f"{text!r} has braces, and only {NAME} stands for something")
            check_name(plain)
            Pattern(plain)
        except ValueError as error:
            raise ConfigError(f"{where}: {error}") from None
    return texts


def _tokens_path(values: dict[str, Any], path: Path) -> Path | None:
    named = values.get("tokens_file")
    if named is None:
        return None
    if not isinstance(named, str) or not named:
        raise ConfigError(f"{path}: tokens_file must be the name of a file, not {named!r}")
    return path.parent / named


def _tokens(path: Path) -> dict[str, str]:
    tokens: dict[str, str] = {}
    owners: dict[str, str] = {}
    for name, token in _toml(path).items():
        try:
            check_token_name(name)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        if isinstance(token, dict):
            raise ConfigError(f'{path}: {name} is a table; a name with a dot needs "quotes"')
        if not isinstance(token, str):
            raise ConfigError(f"{path}: {name} must be a text, not {type(token).__name__}")
        if len(token) < MIN_TOKEN:
            raise ConfigError(
                f"{path}: {name} has a token of {len(token)} characters, and {MIN_TOKEN} are the "
                f"least: cubecast token {name}"
            )
        if token in owners:
            raise ConfigError(f"{path}: {owners[token]} and {name} have the same token")
        owners[token] = name
        tokens[name] = token
    return tokens


def read_by_others(path: Path) -> bool:
    """Whether others on this machine can read a file."""
    try:
        return bool(path.stat().st_mode & READ_BY_OTHERS)
    except OSError:  # it was there a moment ago
        return False


def _warn_of_readers(path: Path) -> None:
    if read_by_others(path):
        log.warning("%s: others on this machine can read the tokens: chmod 600 %s", path, path)
