"""``cubecast secret``: a secret that cannot be guessed."""

from __future__ import annotations

import typer

from cubecast.net.security.keys import new_secret


def secret() -> None:
    """Print a new secret for a cluster, for its clients, or for one client.

    It has 256 random bits. Keep it in a file that only the nodes can read, and
    name the file in secret_file (or client_secret_file), or in the environment
    as CUBECAST_SECRET_FILE.

    \b
    Example:
      (umask 077; cubecast secret > cluster.secret)
      CUBECAST_SECRET_FILE=cluster.secret cubecast up -n 3
    """
    typer.echo(new_secret())
