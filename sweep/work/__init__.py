"""The pieces of work of a study, the queue that orders them, and the worker that does one. Independent of Ray."""
