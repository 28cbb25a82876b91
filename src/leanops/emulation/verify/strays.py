"""What no topic can answer for: rows under the name of no topic, and personal data in any error row."""

from leanops.emulation.scenario import Scenario
from leanops.emulation.verify.fates import Database
from leanops.emulation.verify.found import Check, Found, Wrong, in_clear, text
from leanops.runtimes.embedded import Embedded


def strays(runtime: Embedded, scenario: Scenario) -> tuple[Check, ...]:
    """Check the tables that all topics share, as a whole."""
    databases = runtime.platform.rules.databases
    errors = (databases.errors, databases.parse_errors, databases.dlq_errors)
    ops = [databases.ops_table(name) for name in ("drift_log", "job_run_history")]
    database = Database(runtime.home)
    foreign, clear = list[Wrong](), list[Wrong]()
    try:
        for table in (*errors, *ops):
            Found(runtime, "", database).load("shared", table)
            foreign += _foreign(database, scenario, table, "message_id" if table in errors else "NULL")
            clear += in_clear(database, "shared", table, scenario.names().values()) if table in errors else []
    finally:
        database.close()
    return Check.none("rows of no topic", foreign), Check.none("personal data in clear in all errors", clear)


def _foreign(database: Database, scenario: Scenario, table: str, message: str) -> list[Wrong]:
    """Rows of a table without a topic, or with one that is not of this emulation."""
    names = ", ".join(text(name) for name in scenario.names())
    foreign = (
        f"SELECT coalesce({message}, '-') FROM shared WHERE coalesce(topic_name NOT IN ({names}), true) ORDER BY 1"
    )
    return [Wrong(name, f"is in {table} under an unknown topic") for (name,) in database.rows(foreign)]
