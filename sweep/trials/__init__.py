"""What a study asks for, trial by trial: cells, their names, what they cost. Loads no ray."""
