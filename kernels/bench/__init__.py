"""`python -m kernels.bench`: checks every kernel on a GPU, times it beside its peers, and writes down what it found.

__main__     the command
run          sections, their seconds, whose turn it is, what is written when
supervisor   processes that may fail, hang or die; `work` is what they do
ahead        kernels compiled by all cores before they are launched
machine      what is measured on, and a median time
race         contestants on the same task, beside two ceilings
checks       every op against the float64 reference, on the cases of `cases`, beside the functions of `peers`
attention, rows, swap    what is timed; `reference` is PyTorch's own model for the last
ledger       its file: what was found, and whether it still holds; `fingerprint` hashes the code of an op
charts, report   what is made of it, without a GPU and without PyTorch
"""
