"""Configuration from flags, the environment, a file, a preset and the defaults, in that order.

A value is checked where it is read, so that an error names the file (or variable, or flag) and
the key.  Nothing is searched for: a file is read if it is named.
"""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from fractions import Fraction
from pathlib import Path
from typing import Any, get_type_hints

import msgspec

from cubecast.errors import ConfigError
from cubecast.logs import FORMATS, LEVELS
from cubecast.net.links.address import parse_address
from cubecast.net.links.reach import parse_seeds
from cubecast.net.security.keys import MIN_SECRET, MIN_TOKEN
from cubecast.net.security.permission_file import check_token_name, read_by_others
from cubecast.net.settings.config import PARTS, NodeConfig
from cubecast.net.settings.presets import PRESETS, preset_values
from cubecast.net.settings.units import DURATIONS, SIZES, parse_quantity

PREFIX = "CUBECAST_"
DEFAULT_PRESET = "local"
SECRETS = ("secret", "client_secret")
"""Keys that may be in a file of their own, `KEY_file`."""
EXTRA_KEYS = (
    "preset",
    "join",
    "client_name",
    *(f"{key}_file" for key in SECRETS),
    "log_format",
    "log_level",
)
"""What may be set and is no field of `NodeConfig`."""
TLS_KEYS = frozenset(("tls_ca", "tls_cert", "tls_key", "tls_crl"))
"""Names of files; in a file of configuration, relative to it."""
Converter = Callable[[object], Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """A configuration, the cluster to join, and the source of each value."""

    config: NodeConfig
    join: str
    """A member of the cluster to join; empty: begin a cluster."""
    preset: str
    origins: dict[str, str]
    log_format: str = "text"
    """How the commands write their log; a library writes none of its own."""
    log_level: str = "WARNING"
    client_name: str = ""
    """The name of a light client; the secret is then its token."""
    exposed: tuple[Path, ...] = ()
    """Files with a secret that others on this machine can read."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One place values come from; `name` says how a key is called there."""

    values: Mapping[str, object]
    name: Callable[[str], str]
    origin: Callable[[str], str]
    folder: Path


def load_config(
    path: str | Path | None = None, environ: Mapping[str, str] = os.environ, **flags: Any
) -> NodeConfig:
    """The effective configuration; `load_settings` also returns the cluster to join."""
    return load_settings(path, environ, **flags).config


def load_settings(
    path: str | Path | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    defaults: Mapping[str, object] | None = None,
    **flags: Any,
) -> Settings:
    """Read every source; flags > environment > file > preset > defaults.

    `path` names a TOML file (or `CUBECAST_CONFIG` does); a flag that is None was not given.
    Raises `ConfigError`, in one line, if a value is invalid.
    """
    named = path or environ.get(f"{PREFIX}CONFIG") or None
    sources = [_flags(flags), _environment(environ)]
    if named is not None:
        sources.append(_file(Path(named)))
    given: dict[str, Any] = {}
    origins: dict[str, str] = {}
    exposed: list[Path] = []
    for source in sources:
        for key, value in _read(source).items():
            if key not in given:
                given[key] = value
                from_file = key in SECRETS and key not in source.values
                origins[key] = source.origin(f"{key}_file" if from_file else key)
                if from_file and read_by_others(found := _secret_path(source, key)):
                    exposed.append(found)
    preset = given.pop("preset", DEFAULT_PRESET)
    for key in preset_values(preset):
        origins.setdefault(key, f"preset {preset}")
    given = {**(defaults or {}), **given}
    join = given.pop("join", "")
    logs = {key: given.pop(key) for key in ("log_format", "log_level") if key in given}
    name = given.pop("client_name", "")
    if name and 0 < (length := len(given.get("secret", ""))) < MIN_SECRET:
        raise ConfigError(
            f"{origins['secret']}: secret has {length} characters; the token of {name!r} has at "
            f"least {MIN_TOKEN}: `cubecast token {name}` makes one"
        )
    try:
        config = NodeConfig.preset(preset, **given)
    except ValueError as error:
        raise ConfigError(_blame(str(error), origins, named)) from None
    origins = {key: origins.get(key, "default") for key in KEYS}
    return Settings(config, join, preset, origins, client_name=name, exposed=tuple(exposed), **logs)


def _secret_path(source: _Source, key: str) -> Path:
    return source.folder / str(source.values[f"{key}_file"])


def _blame(error: str, origins: Mapping[str, str], path: str | Path | None) -> str:
    """Name the source of the first key that the error speaks of."""
    for word in error.replace("(", " ").split():
        origin = origins.get(word, "")
        if origin and not origin.startswith("preset"):
            return f"{origin}: {error}"
    return f"{path}: {error}" if path is not None else error


# -- sources --------------------------------------------------------------------------------------


def _flags(flags: Mapping[str, object]) -> _Source:
    values = {key: value for key, value in flags.items() if value is not None}
    return _Source(values, lambda key: key, lambda key: f"flag {key}", Path())


def _environment(environ: Mapping[str, str]) -> _Source:
    """Known variables alone: others with our prefix may be anyone's (a container's, say)."""
    values = {
        key: environ[PREFIX + key.upper()] for key in KEYS if environ.get(PREFIX + key.upper())
    }
    return _Source(
        values,
        lambda key: f"environment: {PREFIX}{key.upper()}",
        lambda key: f"environment {PREFIX}{key.upper()}",
        Path(),
    )


def _file(path: Path) -> _Source:
    try:
        values = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not TOML: {error}") from None
    return _Source(values, lambda key: f"{path}: {key}", lambda key: str(path), path.parent)


def _read(source: _Source) -> dict[str, Any]:
    """The checked values of one source, a secret file read."""
    read: dict[str, Any] = {}
    for key, value in source.values.items():
        convert = KEYS.get(key)
        if convert is None:
            near = difflib.get_close_matches(key, KEYS, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ConfigError(f"{source.name(key)} is no key of the configuration{hint}")
        try:
            read[key] = convert(value)
        except (ValueError, TypeError, msgspec.ValidationError) as error:
            raise ConfigError(f"{source.name(key)} {error}") from None
    for key in SECRETS:
        named = f"{key}_file"
        if named in read:
            if key in read:
                raise ConfigError(f"{source.name(named)} and {key} exclude each other")
            del read[named]
            read[key] = _secret(_secret_path(source, key), source.name(named))
    for key in sorted((TLS_KEYS | {"permissions", "audit_log"}) & read.keys()):
        if read[key] not in ("", "-"):
            read[key] = str(source.folder / read[key])
    return read


def _secret(path: Path, name: str) -> str:
    try:
        secret = path.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not text in UTF-8"
        raise ConfigError(f"{name} cannot be read: {path}: {reason}") from None
    if not secret:
        raise ConfigError(f"{name} names an empty file: {path}; `cubecast secret` makes a secret")
    return secret


# -- values ---------------------------------------------------------------------------------------


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be a text, not {value!r}")
    return value


def _utf8(value: object) -> str:
    """A text that can be sent; bytes of a flag or a variable that are no UTF-8 cannot.

    The value is not shown: it may be the secret.
    """
    text = _text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("must be text in UTF-8, and has bytes that are not") from None
    return text


def _address(value: object) -> str:
    text = _utf8(value)
    try:
        parse_address(text)
    except ValueError as error:
        raise ValueError(f"must be an address, host:port: {error}") from None
    return text


def _seeds(value: object) -> str:
    text = _utf8(value)
    try:
        if text:  # else: begin a cluster
            parse_seeds(text)
    except ValueError as error:
        raise ValueError(f"must be an address, host:port: {error}") from None
    return text


def _client_name(value: object) -> str:
    name = _text(value)
    try:
        check_token_name(name)
    except ValueError as error:
        raise ValueError(f"cannot be this: {error}") from None
    return name


def _preset(value: object) -> str:
    if value not in PRESETS:
        raise ValueError(f"must be one of {', '.join(PRESETS)}, not {value!r}")
    return str(value)


def _one_of(names: Sequence[str]) -> Converter:
    """For a key with a few values; capitals do not matter."""
    by_small = {name.lower(): name for name in names}

    def convert(value: object) -> str:
        found = by_small.get(value.lower()) if isinstance(value, str) else None
        if found is None:
            raise ValueError(f"must be one of {', '.join(by_small)}, not {value!r}")
        return found

    return convert


def _quantity(value: object, units: dict[str, Fraction], bare: Fraction, expected: str) -> Fraction:
    """A number in the field's own unit, or a text with a unit."""
    try:
        if isinstance(value, str):
            return parse_quantity(value, units, bare)
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
            return Fraction(value) * bare
    except ValueError:
        pass
    raise ValueError(f"must be {expected}, not {value!r}")


def _whole(amount: Fraction, value: object, expected: str) -> int:
    if amount.denominator != 1:
        raise ValueError(f"must be {expected}, not {value!r}")
    return int(amount)


def _seconds(value: object) -> float:
    expected = "a number of seconds or a text such as '20ms'"
    return float(_quantity(value, DURATIONS, DURATIONS["s"], expected) / DURATIONS["s"])


def _microseconds(value: object) -> int:
    expected = "a whole number of microseconds or a text such as '20ms'"
    return _whole(_quantity(value, DURATIONS, Fraction(1), expected), value, expected)


def _size(value: object) -> int:
    expected = "a whole number of bytes or a text such as '4MiB'"
    return _whole(_quantity(value, SIZES, Fraction(1), expected), value, expected)


def _count(value: object) -> int:
    expected = "a whole number"
    return _whole(_quantity(value, {}, Fraction(1), expected), value, expected)


def _of_type(hint: Any) -> Converter:
    """For fields of any other type: what msgspec takes for one."""

    def convert(value: object) -> Any:
        try:
            return msgspec.convert(value, hint, strict=False)
        except msgspec.ValidationError as error:
            if hint is bool:
                raise ValueError(f"must be true or false, not {value!r}") from None
            raise ValueError(f"is wrong: {error}, not {value!r}") from None

    return convert


def _converter(owner: type, name: str, annotation: str) -> Converter:
    """By the name's unit, else by the type."""
    if name in ("listen", "advertise", "metrics"):
        return _address
    if name in SECRETS:
        return _utf8
    if name.endswith("_s"):
        return _seconds
    if name.endswith("_bytes") or name == "window":
        return _size
    if annotation == "Time":
        return _microseconds
    hint = get_type_hints(owner)[name]
    return {str: _text, int: _count}.get(hint) or _of_type(hint)


def _converters() -> dict[str, Converter]:
    keys: dict[str, Converter] = {
        "preset": _preset,
        "join": _seeds,
        "log_format": _one_of(tuple(FORMATS)),
        "log_level": _one_of(LEVELS),
        "client_name": _client_name,
    }
    keys.update((f"{key}_file", _text) for key in SECRETS)
    for owner in (NodeConfig, *PARTS.values()):
        for one in fields(owner):
            if one.name not in PARTS:
                keys[one.name] = _converter(owner, one.name, str(one.type))
    return keys


KEYS = _converters()
"""Every key of a configuration, and how its value is read."""
