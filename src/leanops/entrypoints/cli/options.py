"""Arguments and options that several commands share."""

from typing import Annotated

import typer

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Go ahead without asking.")]
