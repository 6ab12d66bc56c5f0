def check(study, store, resources, data_dir): pass
