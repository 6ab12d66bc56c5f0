"""What can be composed over any method: one file each, named after the wrapper. A file that is put here is found."""
