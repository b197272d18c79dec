"""The ops of `minitransformer.ops` on a GPU: this package will hold their Triton kernels.

Each will have the same name and signature as its NumPy reference, so that it can take its place in the same model
through the `Ops` table. There are none yet.
"""
