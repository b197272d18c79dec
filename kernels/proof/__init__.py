"""The parts that proofs of the kernels share, on a GPU, in Triton's interpreter, as machine code and in the lessons.

cases        the inputs that every op is checked on
checks       the check: every op against the float64 reference, beside PyTorch's functions (`peers`)
pretending   a GPU that is not here: kernels are compiled for it
ledger       what was found on which GPU and whether it still holds; `fingerprint` hashes the code of an op
"""
