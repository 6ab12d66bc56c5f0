"""What is kept: records, weights and leases, in a folder or behind s3://. Loads no torch and no ray."""
