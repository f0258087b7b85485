"""`crcen look`: a table before anything is fitted."""

from typing import Annotated, Any

import typer

from crcen.cli.app import Json, app
from crcen.cli.options import Data, interruptible, is_watched, reads_table, show

__all__ = ["look"]


@app.command(epilog="Example:  crcen look data.csv --target fraud")
@reads_table
def look(
    data: Data,
    target: Annotated[
        str | None, typer.Option(help="Column with the label: columns that tell it by themselves are named.")
    ] = None,
    positive: Annotated[
        str | None, typer.Option(help="The value to find: default the rarer one of two, and every class of more.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(help="Column to leave out; may be repeated.")] = None,
    keep: Annotated[list[str] | None, typer.Option(help="Column to use although it looks like an identifier.")] = None,
    category: Annotated[list[str] | None, typer.Option(help="Column of categories although it holds numbers.")] = None,
    read: Any = None,
    as_json: Json = False,
) -> None:
    """Look at a table before a fit: kinds, gaps, ids, leaks, and what would be done with each column."""
    with interruptible():
        import crcen

        result = crcen.look_at_table(
            data,
            target=target,
            positive=positive,
            drop=drop or (),
            keep=keep or (),
            categorical=category or (),
            read=read,
            verbose=is_watched(),
        )
    show(result, as_json)
