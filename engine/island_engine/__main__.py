"""python -m island_engine"""

import sys

from island_engine.cli import main

if __name__ == "__main__":  # a spawned scheduler imports this module again
    sys.exit(main())
