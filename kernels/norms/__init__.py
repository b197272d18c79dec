"""LayerNorm and RMSNorm, alone and as Add & Norm.

layernorm    its pair, and the versions that led to it
rmsnorm      the same for RMSNorm
whole        the kernels of both, for rows that stay in registers
wide         the kernels of both, for wider rows, which they sweep over
"""
