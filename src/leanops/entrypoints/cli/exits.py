"""The exit codes of every command."""

DONE, FAILED, USAGE, PROBLEMS, INTERRUPTED = 0, 1, 2, 3, 130
