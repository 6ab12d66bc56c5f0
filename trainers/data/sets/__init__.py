"""The data sets: one file each, named after the data set. New files in this folder are found automatically."""
