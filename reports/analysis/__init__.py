"""From records to numbers: values of cells, statistics, tests and sequential decisions."""
