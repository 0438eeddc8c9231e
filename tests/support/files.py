"""Files that tests write for nodes, and files of nodes that tests read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def written(folder: Path, text: str, tokens: str | None = None) -> Path:
    path = folder / "permissions.toml"
    if tokens is not None:
        secret = folder / "tokens.toml"
        secret.write_text(tokens, encoding="utf-8")
        secret.chmod(0o600)
        text = f'tokens_file = "tokens.toml"\n{text}'
    path.write_text(text, encoding="utf-8")
    return path


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
