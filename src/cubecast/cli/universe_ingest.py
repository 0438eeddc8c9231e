"""``cubecast universe ingest``: a trace becomes a universe, and every row is accounted for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.on_spark import (
    ConfOption,
    JsonOption,
    MasterOption,
    spark_errors,
    spark_settings,
    steps,
)
from cubecast.cli.output import console

if TYPE_CHECKING:
    from cubecast.spark.universe.ingest import Manifest
    from cubecast.spark.universe.mapping import Mapping

COMMAND = "universe ingest"
MOST_BAD_PERCENT = 1.0
MOST_REASONS = 10
"""The most reasons that are printed; the manifest has all of them."""


def ingest(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="The files of one trace, in order.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the universe goes.")],
    importer: Annotated[
        str | None,
        typer.Option("--from", metavar="NAME", help="A trace that is known (list below)."),
    ] = None,
    kind: Annotated[
        str | None,
        typer.Option("--as", metavar="subscriptions|publications", help="What rows are."),
    ] = None,
    format: Annotated[
        str | None,
        typer.Option(
            metavar="csv|tsv|ssv|text|json|parquet|lists",
            help="How rows are written; without it, what the name of the first file says.",
        ),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD=COLUMN,...",
            help="Where the fields are, by name or position from 0; a+b is a name of two columns.",
        ),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="Between cells; also the words tab, space, whitespace."),
    ] = None,
    header: Annotated[
        bool | None, typer.Option(help="The first line of each file names the columns.")
    ] = None,
    quote: Annotated[
        str | None, typer.Option(metavar="CHARACTER", help='Encloses cells; in CSV it is ".')
    ] = None,
    list_separator: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Between the topics, or replies, in a cell.")
    ] = None,
    nothing: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What a cell says for: no replies.")
    ] = None,
    names: Annotated[
        str | None,
        typer.Option(metavar="FIELD,...", help="The ids that are text: user, topic, post."),
    ] = None,
    time_unit: Annotated[
        str | None, typer.Option(metavar="s|ms|us|iso", help="How times are written.")
    ] = None,
    comment: Annotated[
        str | None, typer.Option(metavar="TEXT", help="A line that begins with it is no row.")
    ] = None,
    width: Annotated[
        int | None, typer.Option(min=1, help="Columns of a row, where the first row may mislead.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN=PATTERN", help="Only rows whose cell matches, or with != does not."
        ),
    ] = None,
    subscribe: Annotated[
        bool | None,
        typer.Option("--subscribe", help="Users subscribe to the topics that they publish to."),
    ] = None,
    most_bad: Annotated[
        float,
        typer.Option(min=0, max=100, metavar="PERCENT", help="More bad rows make it unsound."),
    ] = MOST_BAD_PERCENT,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put it in place of another universe.")
    ] = False,
    master: MasterOption = "local[*]",
    conf: ConfOption = None,
    as_json: JsonOption = False,
) -> None:
    """Read a trace into typed tables; quarantine and count every row that cannot be read.

    Files may be compressed (.gz, .bz2, .xz, .zst). Pairs that occur twice are merged. Ids are whole
    numbers, or text (--names), which is numbered. Rows that cannot be read go to the table
    `quarantine` with the reason: rows read = kept + duplicates + quarantined + skipped, always.
    With more than --most-bad of them the universe is marked unsound, other commands refuse it, and
    this one exits with 1. The same command again replaces what it made; another universe stays
    unless --replace.

    \b
    Known traces, with --from:
      youtube             user TAB group: subscriptions
      wikipedia-edits     user SPACE page SPACE seconds: publications, and subscriptions
      askubuntu           a directory: threads and tags joined on the question
      irc                 channel,log,line,second,user,reply_to: publications with reply links
      snap-communities    a community per line, members separated by tabs (com-lj.all.cmty.txt.gz)
      snap-edges          from TAB to, with # comments: a user follows a journal
      snap-temporal       from SPACE to SPACE seconds: publications, and subscriptions
      wiki-meta           SNAP's Wikipedia edits (REVISION lines), registered editors
      mediawiki-history   Wikimedia's monthly TSV dumps, registered editors; of before 2025:
      mediawiki-history-2019

    \b
    Examples:
      cubecast universe ingest groups.tsv.gz --from youtube --out youtube
      cubecast universe ingest likes.csv --as subscriptions --header \\
          --columns user=login,topic=tag --names user,topic --out likes
          names in the columns `login` and `tag`
      cubecast universe ingest posts.jsonl.zst --as publications --subscribe --out posts \\
          --columns time=created,user=author,topics=tags --names topic --time-unit iso
      cubecast universe ingest edits-*.tsv --as publications --out edits \\
          --columns time=0,user=1,topics=3 --list-separator ';' --time-unit ms
    """
    with spark_errors(COMMAND):
        mapping, subscribed = _mapping(
            importer, kind, format or _guessed(files[0], importer), columns, names, where,
            subscribe, separator=_separator(separator), header=header, quote=quote,
            list_separator=_separator(list_separator), nothing=nothing, time_unit=time_unit,
            comment=comment, width=width,
        )  # fmt: skip
        manifest = _run(
            files, importer, mapping, subscribed, most_bad / 100, replace, out, master,
            spark_settings(COMMAND, conf),
        )  # fmt: skip
    if as_json:
        typer.echo(json.dumps({"out": str(out), **manifest.facts()}))
    else:
        _tell(manifest, out)
    if not manifest.sound:
        _tell_unsound(manifest, out, most_bad)
        raise typer.Exit(1)


def _separator(text: str | None) -> str | None:
    from cubecast.spark.universe.mapping import parse_separator

    return None if text is None else parse_separator(text)


def _guessed(path: Path, importer: str | None) -> str | None:
    """The format by a file's name; None if the importer knows, or the name does not tell."""
    from cubecast.spark.universe.sources import format_of

    return None if importer else format_of(path)


def _mapping(
    importer: str | None,
    kind: str | None,
    format: str | None,
    columns: str | None,
    names: str | None,
    where: list[str] | None,
    subscribe: bool | None,
    **options: Any,
) -> tuple[Mapping | None, bool]:
    """The mapping by the options (None: the importer has its own), and `subscribe`."""
    from cubecast.spark.universe.errors import UniverseTraceError
    from cubecast.spark.universe.importers import find_importer
    from cubecast.spark.universe.mapping import (
        Mapping,
        changed,
        parse_columns,
        parse_condition,
    )

    told = {
        **options,
        "kind": kind,
        "format": format,
        "columns": None if columns is None else parse_columns(columns),
        "names": None if names is None else frozenset(one.strip() for one in names.split(",")),
        "conditions": None if where is None else tuple(map(parse_condition, where)),
    }
    if importer is not None:
        known = find_importer(importer)
        if known.mapping is None:
            given = sorted(name for name, value in told.items() if value is not None)
            if given:
                raise UniverseTraceError(
                    f"--from {importer} reads its files in its own way: drop the rest"
                )
            return None, True
        return changed(known.mapping, **told), known.subscribe if subscribe is None else subscribe
    if kind is None:
        raise UniverseTraceError(
            "say what the rows are: --as subscriptions, --as publications or --from"
        )
    if format is None:
        raise UniverseTraceError(
            "say how rows are written, with --format csv, tsv, ssv, json or parquet"
        )
    if columns is None and format != "lists":
        raise UniverseTraceError("say where the fields are, as in --columns user=0,topic=1")
    return Mapping(**{name: value for name, value in told.items() if value is not None}), bool(
        subscribe
    )


def _run(
    files: list[Path],
    importer: str | None,
    mapping: Mapping | None,
    subscribe: bool,
    most_bad: float,
    replace: bool,
    out: Path,
    master: str,
    conf: dict[str, str],
) -> Manifest:
    from cubecast.spark.session import spark_session
    from cubecast.spark.universe.importers import find_importer
    from cubecast.spark.universe.ingest import ingest_trace

    with steps() as tell, spark_session(master, conf=conf) as session:
        tell.watch(session)
        if mapping is None:
            own = find_importer(importer or "").own
            assert own is not None, "an importer has a mapping or a way of its own"
            return own(session, files, out, replace=replace, tell=tell)
        return ingest_trace(
            session, files, mapping, out, subscribe=subscribe, most_bad=most_bad,
            replace=replace, tell=tell,
        )  # fmt: skip


def _tell(manifest: Manifest, out: Path) -> None:
    say = console.print
    counts = manifest.counts
    say(f"{counts.told()}", highlight=False, soft_wrap=True)
    for table, rows in manifest.tables.items():
        say(f"  {table:<14} {rows:>14,}", highlight=False)
    if manifest.users is not None and manifest.topics is not None:
        say(f"{manifest.users:,} users x {manifest.topics:,} topics", highlight=False)
    for reason, number in list(counts.quarantined_by.items())[:MOST_REASONS]:
        say(f"  quarantined: {reason}: {number:,}", markup=False, highlight=False)
    for hint in manifest.hints:
        say(f"  note: {hint}", markup=False, highlight=False, soft_wrap=True)
    say(f"in {out}", highlight=False, soft_wrap=True)


def _tell_unsound(manifest: Manifest, out: Path, most_bad: float) -> None:
    counts = manifest.counts
    first = "; ".join(
        f"{reason} ({number:,})" for reason, number in list(counts.quarantined_by.items())[:3]
    )
    typer.echo(
        f"cubecast {COMMAND}: {counts.quarantined:,} of {counts.read:,} rows are bad, more than "
        f"{most_bad:g} %: {first}; the universe is marked unsound, see {out / 'quarantine'}",
        err=True,
    )
