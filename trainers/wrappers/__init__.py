"""The wrappers, composed over any method: one file each, named after the wrapper. New files are found automatically."""
