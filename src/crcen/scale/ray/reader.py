"""What Ray's own processes run: the survey of some files, and their reading.

Neither loads torch. That takes seconds in every process, and Ray stops a reader whenever it likes: one that is stopped
while torch is being loaded leaves a process in which torch can never be loaded again.
"""

from collections.abc import Iterator, Sequence

from crcen._support.lazy import pa
from crcen.exceptions import CrcenError
from crcen.scale.sources import ArrowSource
from crcen.scale.statistics import StreamStatistics, survey_source
from crcen.tables.typing import ArrowTable
from crcen.theory.price import Labels

TARGET, WEIGHT = "target", "weight"


def survey_part(
    part: ArrowSource, validation_fraction: float, seed: int, sample_rows: int
) -> StreamStatistics | CrcenError:
    """Counts and moments of some files, or why they cannot be used: a value, since Ray would try an error again."""
    try:
        return survey_source(part, validation_fraction, seed, sample_rows)
    except CrcenError as error:
        return error


def read_groups(
    groups: Sequence[Sequence[int]], source: ArrowSource, labels: Labels, buffer_rows: int, seed: int
) -> Iterator[ArrowTable]:
    """Rows of groups of files as Arrow tables, for Ray Data: a column a feature, then target and weight."""
    for group in groups:
        for block in source.part(group).blocks(buffer_rows, seed, group[0]):
            tables = []
            for chunk in block:
                columns = {str(j): column for j, column in enumerate(chunk.X.T)}
                tables.append(pa.table({**columns, TARGET: chunk.target(labels), WEIGHT: chunk.weight}))
            yield pa.concat_tables(tables)
