"""One pass over all rows before a streamed fit: they are checked, counted and measured. Needs no torch."""

from collections.abc import Callable, Iterator

from crcen.scale.chunks import Chunk
from crcen.scale.sources import RowSource, read_ahead
from crcen.scale.statistics import StreamStatistics

__all__ = ["survey_source"]


def survey_source(rows: RowSource, validation_fraction: float, seed: int, sample_rows: int = 0) -> StreamStatistics:
    """Counts and moments of all rows, which are all checked on the way, and a sample of them."""
    whole: list[StreamStatistics] = []

    def use(chunks: Iterator[Chunk]) -> Callable[[], None]:
        part: StreamStatistics | None = None
        for chunk in read_ahead(chunks, depth=4):
            part = part or StreamStatistics(rows.names, validation_fraction, seed, sample_rows=sample_rows)
            part.add(chunk)

        def keep() -> None:
            if part is not None and whole:
                whole[0].merge(part)
            elif part is not None:
                whole.append(part)

        return keep

    rows.survey(use)
    return whole[0] if whole else StreamStatistics(rows.names, validation_fraction, seed)
