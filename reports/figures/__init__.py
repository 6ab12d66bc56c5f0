"""The figures of a report. Each file declares the figures that it draws in `FIGURES`."""
