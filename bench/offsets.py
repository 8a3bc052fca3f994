"""The map of this machine: what recv, send, masking and copying cost, by the offset of their memory from a page.

    python -m bench.offsets [SIZE ...]         by default 8, 64 and 256 KiB

Buffers should lie at the offsets with the smallest figures. See machine/offsets.c for what is measured.
"""

import subprocess
import sys

from bench import native
from bench.measure.harness import cpus


def main():
    for size in sys.argv[1:] or ("8192", "65536", "262144"):
        print(f"\n{size} bytes, ns per call", flush=True)
        words = [native.program("machine/offsets"), cpus("same")[0], size]
        subprocess.run([str(word) for word in words], check=True)


if __name__ == "__main__":
    main()
