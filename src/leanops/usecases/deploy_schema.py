"""A schema goes live: validated, given its version, activated, recorded."""

from hashlib import sha256

import msgspec

from leanops.domain.errors import InvalidSchemaError
from leanops.domain.problems import Code, Problem
from leanops.domain.schema import Schema, changed_types, schema_from_json
from leanops.domain.tables import OPS
from leanops.usecases.platform import Platform, secret_key
from leanops.usecases.topics import enable_topic, find_topic


def deploy_schema(platform: Platform, topic: str, text: str, source: str, actor: str) -> tuple[Schema, bool]:
    """Activate the schema in `text`; the schema, and whether it is new. The same content twice changes nothing."""
    find_topic(platform, topic)
    schema = schema_from_json(text, source)
    _check_table(platform, topic, schema, source)
    _check_secret(platform, topic, schema)
    active = platform.schemas.active(topic)
    if active and _fingerprint(active) == _fingerprint(schema):
        # A crash may have come between the file and its record.
        _record(platform, topic, active, _with_version(text, active.version), actor)
        enable_topic(platform, topic, active.version)
        return active, False
    version = max(schema.version, active.version + 1) if active else schema.version
    numbered = schema.model_copy(update={"version": version})
    content = _with_version(text, version)
    platform.schemas.keep(topic, version, content)
    platform.schemas.activate(topic, version)
    _record(platform, topic, numbered, content, actor)
    enable_topic(platform, topic, version)
    return numbered, True


def _with_version(text: str, version: int) -> str:
    """The file with its version number, every other member as it was written."""
    members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    members["version"] = msgspec.Raw(str(version).encode())
    return msgspec.json.format(msgspec.json.encode(members), indent=2).decode() + "\n"


def _check_table(platform: Platform, topic: str, schema: Schema, source: str) -> None:
    for other, table in platform.schemas.topics().items():
        if other != topic and table == schema.table_name:
            taken = f"{table!r} belongs to topic {other!r}"
            raise InvalidSchemaError(source, [Problem(Code.TABLE_TAKEN, "/table_name", taken, "choose another name")])
    active = platform.schemas.active(topic)
    if active and active.table_name != schema.table_name:
        renamed = f"is {active.table_name!r} today and cannot be renamed"
        raise InvalidSchemaError(
            source, [Problem(Code.TABLE_RENAMED, "/table_name", renamed, "keep the name of today")]
        )
    curated = platform.catalog.load(platform.rules.databases.curated_table(schema.table_name))
    changed = changed_types(schema, curated.columns) if curated else {}
    if changed:
        problems = [
            Problem(
                Code.TYPE_CHANGED,
                f"/payload_columns/{at}/type",
                "{} is {} in Curated and cannot become {}".format(column.name, *changed[column.name]),
                "give the column a new name",
            )
            for at, column in enumerate(schema.payload_columns)
            if column.name in changed
        ]
        raise InvalidSchemaError(source, problems)


def _check_secret(platform: Platform, topic: str, schema: Schema) -> None:
    if schema.keys.pii or any(column.pii == "hmac" for column in schema.payload_columns):
        secret_key(platform, topic)


def _fingerprint(schema: Schema) -> str:
    """What makes two schemas the same, whatever their version number."""
    content = schema.model_dump_json(exclude={"version"})
    return sha256(content.encode()).hexdigest()[:16]


def _record(platform: Platform, topic: str, schema: Schema, content: str, actor: str) -> None:
    """Write the version to schema_versions, once."""
    versions = platform.rules.databases.ops_table("schema_versions")
    platform.catalog.create(versions, OPS["schema_versions"])
    known = platform.catalog.select(versions, ["topic_name", "version"], f"version = {schema.version}")
    if any(row["topic_name"] == topic for row in known):
        return
    row = {
        "topic_name": topic,
        "version": schema.version,
        "fingerprint": _fingerprint(schema),
        "classification": "first" if schema.version == 1 else "unclassified",
        "actor": actor,
        "activated_ts": platform.clock(),
        "schema": content,
    }
    platform.catalog.append(versions, [row])
