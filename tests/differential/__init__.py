"""Random programs on openmps and on the library it stands in for, value by value: one package a suite."""
