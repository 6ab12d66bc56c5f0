"""Tables of studies and of papers, as Markdown, LaTeX and CSV."""
