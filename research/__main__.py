"""`python -m research`: run the commands of `research.commands`.

Nothing else is imported here, because every process that generates samples imports this file again.
"""

if __name__ == "__main__":
    from research.commands import main

    main()
