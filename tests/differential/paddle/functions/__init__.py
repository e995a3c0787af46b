"""The functions that are compared: one flat table, by family in the files beside this one."""
