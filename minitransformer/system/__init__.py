"""The operating system's side: files, processes, threads, memory. Nothing here knows what a Transformer is.

allocator    tells the C library to keep freed memory, and says how much memory there is
atomic       writes files that appear whole or not at all
lock         lets only one process write into a folder
progress     a bar on standard error
sealed_json  JSON with a checksum, which shows a changed byte
tensor_file  arrays by name in a file, in the format safetensors
threads      threads that compute side by side
visible      makes text from outside safe to print
workers      forked processes that compute side by side
"""

import sys

WEBASSEMBLY = sys.platform in ("emscripten", "wasi")
"""True in a browser: there is one process with one thread, and no signal."""
