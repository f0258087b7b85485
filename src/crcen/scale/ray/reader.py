"""What Ray's own processes run: the survey of some files, and their reading.

Neither loads torch. That takes seconds in every process, and Ray stops a reader whenever it likes: one that is stopped
while torch is being loaded leaves a process in which torch can never be loaded again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crcen.exceptions import CrcenError
from crcen.scale.sources import ArrowSource, RecordBatch
from crcen.scale.statistics import StreamStatistics, survey_source
from crcen.theory.labels import Labels

TARGET, WEIGHT = "target", "weight"


def survey_part(
    part: ArrowSource, validation_fraction: float, seed: int, sample_rows: int
) -> StreamStatistics | CrcenError:
    """Counts and moments of some files, or why they cannot be used: a value, since Ray would try an error again."""
    try:
        return survey_source(part, validation_fraction, seed, sample_rows)
    except CrcenError as error:
        return error


@dataclass(frozen=True, eq=False)
class Reading:
    """What a reader is told."""

    # The files, and the classes of their labels
    source: ArrowSource
    labels: Labels
    # Rows read together, and the seed of their order
    buffer_rows: int
    seed: int


def read_groups(told: Reading, groups: Sequence[Sequence[int]]) -> Iterator[RecordBatch]:
    """Rows of groups of files as Arrow tables, for Ray Data: a column a feature, then target and weight."""
    import pyarrow as pa

    for group in groups:
        for block in told.source.part(group).blocks(told.buffer_rows, told.seed, group[0]):
            tables = []
            for chunk in block:
                columns = {str(j): column for j, column in enumerate(chunk.X.T)}
                tables.append(pa.table({**columns, TARGET: chunk.target(told.labels), WEIGHT: chunk.weight}))
            yield pa.concat_tables(tables)
