"""The data sets: one file each, named after the data set. A file that is put here is found."""
