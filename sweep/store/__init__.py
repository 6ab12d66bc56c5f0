"""The store: records, weights and leases, in a folder or behind s3://. Importing it loads neither torch nor ray."""
