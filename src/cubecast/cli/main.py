"""The console script, ``cubecast``.

It reads the command line and the command inside `main`, so that Ctrl-C while their modules are
still being read ends the command as it does later: in one line, with 130.
"""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command that was typed."""
    try:
        from cubecast import interrupts

        interrupts.install()
        try:
            from cubecast.cli.app import app

            app()
        finally:
            interrupts.finish()
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # once is enough
        sys.stderr.write("cubecast: interrupted\n")
        sys.exit(130)


if __name__ == "__main__":
    main()
