"""One module a lesson: its exercises, each with the answer of the package and a judge."""
