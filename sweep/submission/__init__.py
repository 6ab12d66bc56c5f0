"""Submission of a study to a cluster: Slurm, KubeRay and Ray jobs."""
