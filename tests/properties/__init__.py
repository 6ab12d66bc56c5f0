"""Whatever is typed or found in a store: a result, a message to the user, or a problem in a report; nothing else."""
