"""A kernel's time on a GPU that is not here, from its machine code and the bytes that it moves.

    python -m kernels.predict       compile what the bench launches, and write kernels/results/predicted-*.json

gpus        what is assumed of a GPU, and the time of a launch by these assumptions
sass        machine code: its loops, what its pipes are asked, and a warp that follows it alone
trips       how often the loops run and what they move, from Triton's own code
launches    what a call launches, without a GPU
table       the committed predictions, and whether they still hold
"""
