"""``cubecast certs``, and a cluster of processes that uses what it makes."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography import x509
from typer.testing import CliRunner, Result

from cubecast.cli.app import app
from cubecast.net.security import authority as authority_module
from support.commands import COMMAND, PATIENT, background, cubecast, one_line, read_line
from support.tls_toys import shifted


def certs(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["certs", *map(str, arguments)])


def done(*arguments: object) -> str:
    """What a command prints that must succeed."""
    result = certs(*arguments)
    assert result.exit_code == 0, result.output
    return result.output


def refused(*arguments: object) -> str:
    """The one line of a command that fails."""
    result = certs(*arguments)
    assert result.exit_code == 2
    (line,) = result.output.splitlines()
    return line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    done("init", folder)
    return folder


def load(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names(path: Path) -> list[str]:
    """The alternative names of a certificate."""
    found = load(path).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(one.value) for one in found]


def test_a_ca_and_keys_are_for_their_owner_alone(folder: Path) -> None:
    done("node", "node1", "--dir", folder)
    for name in ("ca.key", "node1.key"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    for name in ("ca.pem", "crl.pem", "node1.pem"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o644
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_a_certificate_states_role_name_and_hosts(folder: Path) -> None:
    hosts = ("--host", "n1.example.org", "--host", "10.0.0.1", "--host", "::1")
    done("node", "node1", "--dir", folder, *hosts)
    done("client", "alice", "--dir", folder)
    assert names(folder / "node1.pem") == [
        "cubecast://node/node1",
        "n1.example.org",
        "10.0.0.1",
        "::1",
    ]
    assert names(folder / "alice.pem") == ["cubecast://client/alice"]


def test_days_are_counted_and_do_not_outlive_the_ca(folder: Path) -> None:
    done("node", "node1", "--dir", folder, "--days", "10")
    made = load(folder / "node1.pem")
    assert (made.not_valid_after_utc - made.not_valid_before_utc).days == 10
    assert "the CA itself expires in" in refused("node", "n2", "--dir", folder, "--days", "3651")
    assert not (folder / "n2.pem").exists()


def test_nothing_is_overwritten_unless_asked(folder: Path) -> None:
    assert "has a CA already; choose another directory" in refused("init", folder)
    done("node", "node1", "--dir", folder)
    before = (folder / "node1.pem").read_bytes()
    line = refused("node", "node1", "--dir", folder)
    assert line.endswith("node1.pem exists; --replace makes a new certificate and key")
    assert "exists" in refused("client", "node1", "--dir", folder)
    assert (folder / "node1.pem").read_bytes() == before
    done("node", "node1", "--dir", folder, "--replace")
    assert (folder / "node1.pem").read_bytes() != before


@pytest.mark.parametrize("name", ["", "a b", "../a", "ca", "CRL", "-a", "ä", "a" * 65])
def test_a_name_that_cannot_be_is_refused(name: str, folder: Path) -> None:
    assert "cannot be a name" in refused("node", "--dir", folder, "--", name)


@pytest.mark.parametrize("host", ["a b", "a:7400", "", "a" * 300])
def test_a_host_that_cannot_be_is_refused(host: str, folder: Path) -> None:
    assert "is no host" in refused("node", "node1", "--dir", folder, "--host", host)


def test_without_a_ca_or_with_a_damaged_one_the_line_says_what_to_do(
    folder: Path, tmp_path: Path
) -> None:
    for command in (("node", "a"), ("client", "a"), ("revoke", "a"), ("list",), ("show", "a")):
        line = refused(*command, "--dir", tmp_path / "none")
        assert f"has no CA; make one: cubecast certs init {tmp_path / 'none'}" in line
    (folder / "crl.pem").write_text("garbage")
    assert "is no list of revoked certificates" in refused("list", "--dir", folder)
    (folder / "ca.key").write_text("garbage")
    assert "ca.key is no private key" in refused("node", "a", "--dir", folder)
    (folder / "ca.pem").write_text("garbage")
    assert "ca.pem is no certificate" in refused("node", "a", "--dir", folder)
    (tmp_path / "file").write_text("")
    assert "cannot make" in refused("init", tmp_path / "file" / "certs")


def test_revoking_lists_every_certificate_of_a_name(folder: Path) -> None:
    for name in ("alice", "bob"):
        done("client", name, "--dir", folder)
    done("client", "alice", "--dir", folder, "--replace")
    assert "2 certificates of alice" in done("revoke", "alice", "--dir", folder)
    assert "revoked or expired already" in refused("revoke", "alice", "--dir", folder)
    assert "has made no certificate for 'carol'" in refused("revoke", "carol", "--dir", folder)
    done("client", "alice", "--dir", folder, "--replace")
    states = [
        (one["name"], one["state"])
        for one in json.loads(done("list", "--dir", folder, "--json"))["certificates"]
    ]
    assert states == [("alice", "revoked")] * 2 + [("alice", "valid"), ("bob", "valid")]
    crl = x509.load_pem_x509_crl((folder / "crl.pem").read_bytes())
    assert len(list(crl)) == 2
    assert crl.is_signature_valid(load(folder / "ca.pem").public_key())  # type: ignore[arg-type]
    assert "client  bob  valid, until" in done("list", "--dir", folder)
    shown = done("show", "alice", "--dir", folder)
    assert shown.count("cubecast://client/alice  revoked") == 2
    assert "364 days left" in shown or "365 days left" in shown
    assert "has made no certificate" in refused("show", "carol", "--dir", folder)


def test_expired_certificates_are_forgotten(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the record nor the list of revoked certificates grows for ever."""
    for _ in range(3):
        done("client", "alice", "--dir", folder, "--days", "1", "--replace")
    done("revoke", "alice", "--dir", folder)
    assert len(list((folder / "issued").iterdir())) == 3
    monkeypatch.setattr(authority_module, "datetime", shifted(2))
    done("client", "bob", "--dir", folder)
    done("client", "alice", "--dir", folder, "--replace")
    done("client", "carol", "--dir", folder)
    assert len(list((folder / "issued").iterdir())) == 3  # one each
    done("revoke", "bob", "--dir", folder)
    assert len(list(x509.load_pem_x509_crl((folder / "crl.pem").read_bytes()))) == 1


def test_a_folder_that_cannot_be_written_takes_one_line(folder: Path) -> None:
    if os.geteuid() == 0:
        (folder / "issued").rename(folder / "was")
        (folder / "issued").write_text("")
    else:
        folder.chmod(0o500)
    line = refused("node", "node1", "--dir", folder)
    folder.chmod(0o700)
    assert "cannot write" in line
    assert not (folder / "node1.pem").exists()


def test_help_teaches_by_example() -> None:
    for command in ("init", "node", "client", "revoke", "list", "show"):
        text = done(command, "--help")
        assert "Examples:" in text
        assert f"cubecast certs {command}" in text
    assert "cubecast certs init certs" in done("--help")


# -- processes ------------------------------------------------------------------------------------


def flags(folder: Path, name: str) -> tuple[str, ...]:
    files = {"ca": "ca.pem", "cert": f"{name}.pem", "key": f"{name}.key", "crl": "crl.pem"}
    return tuple(
        word for key, file in files.items() for word in (f"--tls-{key}", str(folder / file))
    )


def test_processes_with_certificates_talk_and_a_revoked_one_is_out(
    folder: Path, tmp_path: Path
) -> None:
    """What docs/tls.md shows, typed in several terminals."""
    for name in ("node1", "node2"):
        done("node", name, "--dir", folder)
    for name in ("alice", "bob"):
        done("client", name, "--dir", folder)
    config = tmp_path / "cubecast.toml"
    config.write_text(
        f'{PATIENT}listen = "127.0.0.1:0"\ntls_ca = "certs/ca.pem"\ntls_crl = "certs/crl.pem"\n'
        'tls_cert = "certs/node1.pem"\ntls_key = "certs/node1.key"\n',
        encoding="utf-8",
    )
    with background("node", "--config", str(config)) as first:
        seed = read_line(first).rsplit(" ", 1)[1]
        second = ("--listen", "127.0.0.1:0", "--join", seed, *flags(folder, "node2"))
        with background("node", *second) as joined:
            at = read_line(joined).rsplit(" ", 1)[1]
            with subprocess.Popen(
                [*COMMAND, "sub", "chat", "--count", "1", "--at", at, *flags(folder, "bob")],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ) as sub:  # fmt: skip
                assert sub.stderr is not None
                assert sub.stderr.readline().startswith("subscribed to chat")
                sent = cubecast("pub", "chat", "hello", "--at", seed, *flags(folder, "alice"))
                assert sent.returncode == 0, sent.stderr
                assert sub.communicate(timeout=30)[0] == "hello\n"
        done("revoke", "alice", "--dir", folder)
        again = ("pub", "chat", "hello", "--at", seed, *flags(folder, "alice"))
        while (late := cubecast(*again)).returncode == 0:
            pass  # the node looks every few seconds
        assert "refused: our certificate is revoked" in one_line(late)


def test_an_open_door_is_told_on_stderr() -> None:
    options = ("--listen", "0.0.0.0:0", "--advertise", "127.0.0.1")
    with subprocess.Popen(
        [*COMMAND, "node", *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as node:
        assert node.stdout is not None
        assert node.stdout.readline().startswith("node 0 on 127.0.0.1")
        node.terminate()
        said = node.communicate(timeout=30)[1]
    assert "listens on 0.0.0.0 without a secret or TLS" in said
