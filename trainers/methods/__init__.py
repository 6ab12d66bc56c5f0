"""The methods: one file each, named after the method. A file that is put here is found."""
