"""Getting a run onto a cluster: a Plan becomes a job of SLURM, Kubernetes, SkyPilot or a running Ray."""
