def callbacks(names, study, store): return []
