"""`python -m kernels.bench`: checks every kernel on a GPU, times it beside its peers, and writes down what it found.

__main__     the command
run          sections, their seconds, what is written when
supervisor   processes that may fail, hang or die; `work` is what they do
ahead        kernels compiled by all cores before they are launched
machine      what is measured on, its two ceilings, and a median time
race         contestants on the same task; `rounds` is their order
checks       every op against the float64 reference, on the cases of `cases`, beside the functions of `peers`
attention, rows, swap    what is timed; `reference` is PyTorch's own model for the last
results      the ledger's file
charts, report, targets  what is made of it, without a GPU and without PyTorch
"""
