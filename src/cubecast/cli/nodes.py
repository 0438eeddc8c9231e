"""``cubecast nodes``: the nodes of a cluster, as one of them sees it."""

from __future__ import annotations

import json

import typer

from cubecast.cli.config import (
    DEFAULT_NODE,
    AtOption,
    ConfigOption,
    Credentials,
    JsonOption,
    NameFlag,
    SecretFlag,
    TlsCaOption,
    TlsCertOption,
    TlsCrlOption,
    TlsKeyOption,
    cluster_access,
)
from cubecast.cli.output import console
from cubecast.cli.running import ask
from cubecast.logs import escaped


def nodes(
    at: AtOption = DEFAULT_NODE,
    secret: SecretFlag = None,
    name: NameFlag = None,
    tls_ca: TlsCaOption = None,
    tls_cert: TlsCertOption = None,
    tls_key: TlsKeyOption = None,
    tls_crl: TlsCrlOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the nodes of a cluster, as the node that is asked sees it.

    The epoch is the number of this view of the cluster: it grows whenever nodes
    come, go or are taken for dead.  A suspect is silent and about to be.
    The cluster's name was made at random when it began: two clusters have two.

    Examples:

    \b
      cubecast nodes
      cubecast nodes --at 10.0.0.1:7400 --json
    """
    access = cluster_access("nodes", config, secret, name, tls_ca, tls_cert, tls_key, tls_crl)
    members, epoch, suspects, cluster = ask("nodes", _view(at, access))
    if as_json:
        nodes = {str(slot): address for slot, address in members.items()}
        found = {"nodes": nodes, "epoch": epoch, "suspects": suspects, "cluster": cluster}
        typer.echo(json.dumps(found))
        return
    for slot, address in members.items():
        doubt = "  suspected" if slot in suspects else ""
        console.print(f"node {slot}  {escaped(address)}{doubt}", highlight=False, markup=False)
    seen = f"epoch {epoch}" if epoch >= 0 else "in no cluster at present; these were there before"
    console.print(f"{seen}  cluster {cluster}", highlight=False)


async def _view(at: str, access: Credentials) -> tuple[dict[int, str], int, list[int], str]:
    async with access.connect(at) as client:
        epoch, suspects = await client.view()
        return await client.members(), epoch, suspects, client.cluster
