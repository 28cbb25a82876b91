"""Names that Iceberg and Spark give a meaning of their own are the ones that no payload column gets."""

from typing import Any

from leanops.domain.table.definitions import breaks_merge, is_engine_name
from leanops.runtimes.embedded import Embedded

CATALYST = "org.apache.spark.sql.catalyst"


def constants_of(embedded: Embedded, name: str) -> set[str]:
    """The texts that a Scala object of Spark names in capitals."""
    session = embedded.spark()
    jvm: Any = session._jvm
    scala = jvm.java.lang.Class.forName(f"{CATALYST}.{name}$")
    nothing = session.sparkContext._gateway.new_array(jvm.java.lang.Object, 0)
    found = set()
    for method in scala.getDeclaredMethods():
        is_text = method.getParameterCount() == 0 and method.getReturnType().getName() == "java.lang.String"
        if is_text and method.getName().isupper():
            method.setAccessible(True)
            found.add(method.invoke(scala.getField("MODULE$").get(None), nothing))
    return found


def test_every_helper_column_of_sparks_merge_is_reserved(embedded: Embedded) -> None:
    merge = constants_of(embedded, "util.RowDeltaUtils") | constants_of(embedded, "analysis.RewriteMergeIntoTable")
    assert {"__row_operation", "__row_from_source", "__original_row_id_"} <= merge
    helpers = {f"{name}_pos" if name.endswith("_") else name for name in merge}
    assert [name for name in helpers if not breaks_merge(name)] == []
    rows = constants_of(embedded, "plans.logical.MergeRows")
    assert rows
    assert [name for name in merge | rows if not is_engine_name(name)] == []
