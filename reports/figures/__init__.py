"""The figures of a report: a file each, that declares what it draws."""
