"""``python -m crcen`` is the command ``crcen``."""

from crcen.cli import main

if __name__ == "__main__":
    main()
