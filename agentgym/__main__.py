"""``python -m agentgym``: the same as the command ``agentgym``."""

import sys

from agentgym.cli import main

if __name__ == "__main__":
    sys.exit(main())
