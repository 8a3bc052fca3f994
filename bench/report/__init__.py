"""Reports: tables, plots and pages, from the data of a run and from nothing else."""
