"""What no topic can answer for: rows under a name that is none of theirs, and personal data anywhere in an error."""

from leanops.emulation.scenario import Scenario
from leanops.emulation.verify.fates import Database
from leanops.emulation.verify.found import EXAMPLES, Check, Found, Wrong, identifier, text
from leanops.runtimes.embedded import Embedded


def strays(runtime: Embedded, scenario: Scenario) -> tuple[Check, ...]:
    """The tables all topics share, as a whole."""
    databases = runtime.platform.rules.databases
    errors = (databases.errors, databases.parse_errors, databases.dlq_errors)
    ops = [databases.ops_table(name) for name in ("drift_log", "job_run_history")]
    database = Database(runtime.home)
    foreign, clear = list[Wrong](), list[Wrong]()
    try:
        for table in (*errors, *ops):
            Found(runtime, "", database).load("shared", table)
            foreign += _foreign(database, scenario, table, "message_id" if table in errors else "NULL")
            clear += _clear(database, scenario, table) if table in errors else []
    finally:
        database.close()
    return _check("rows of no topic", foreign), _check("personal data in clear in all errors", clear)


def _check(name: str, wrong: list[Wrong]) -> Check:
    return Check(name, 0, len(wrong), len(wrong), tuple(wrong[:EXAMPLES]))


def _foreign(database: Database, scenario: Scenario, table: str, message: str) -> list[Wrong]:
    """Rows of a table whose topic is no topic of the emulation, or none."""
    names = ", ".join(text(name) for name in scenario.names())
    found = f"SELECT coalesce({message}, '-') FROM shared WHERE coalesce(topic_name NOT IN ({names}), true) ORDER BY 1"
    return [Wrong(name, f"is in {table} under a topic that is none") for (name,) in database.rows(found)]


def _clear(database: Database, scenario: Scenario, table: str) -> list[Wrong]:
    """Rows of a table in which a value of any topic's personal data can be read."""
    shapes = "|".join(sorted({leaf.shape for one in scenario.names().values() for leaf in one.leaves if leaf.shape}))
    described = database.rows("DESCRIBE shared")
    texts = [f"{identifier(column)}::VARCHAR" for column, kind, *_ in described if "VARCHAR" in kind]
    found = f"SELECT coalesce(message_id, '-') FROM shared WHERE regexp_matches(concat_ws(' ', {', '.join(texts)}), ?)"
    return [Wrong(name, f"is in clear in {table}") for (name,) in database.rows(found, [shapes])] if shapes else []
