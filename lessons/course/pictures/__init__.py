"""One module a lesson: drawing code too long for a cell, as functions of the arrays that they draw."""
