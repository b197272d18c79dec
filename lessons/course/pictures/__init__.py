"""The lessons' larger drawings: one module a lesson, functions that take arrays."""
