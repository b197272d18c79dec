"""`python -m kernels.compilation` compiles every kernel for other GPUs: see `kernels.bench.compilation`."""

from .bench.compilation import main

if __name__ == "__main__":
    main()
