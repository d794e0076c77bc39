"""The broker: lets sandboxes out, to where their policy allows, and nowhere else."""
