"""The methods: one file each, named after the method. New files in this folder are found automatically."""
