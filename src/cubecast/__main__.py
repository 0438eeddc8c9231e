"""``python -m cubecast``: the same as the ``cubecast`` command."""

from cubecast.cli.main import main

if __name__ == "__main__":
    main()
