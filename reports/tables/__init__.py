"""Tables: of a study, of a paper, as Markdown, LaTeX and CSV."""
