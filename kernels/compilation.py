"""`python -m kernels.compilation` compiles every kernel for GPUs that are not here (`kernels.bench.compilation`)."""

from .bench.compilation import main

if __name__ == "__main__":
    main()
