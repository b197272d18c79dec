"""The operating system's side: files, processes, threads, memory. Nothing here knows what a Transformer is.

allocator    tells the C library to keep freed memory, and says how much memory there is
atomic       writes files that appear whole or not at all
lock         lets only one process write into a folder
sealed_json  JSON with a checksum, which shows a changed byte
threads      threads that compute side by side
visible      makes text from outside safe to print
workers      forked processes that compute side by side
"""
