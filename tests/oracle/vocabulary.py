"""What the streams are made of: a schema for every type, rule, default and mask, and the texts that test them."""

# Laid out by hand: one text a line would hide which list is which.
# fmt: off
SCHEMA = {
    "table_name": "orders", "version": 1, "owner": "tests", "description": "Orders of the generated streams",
    "keys": {"idempotency_key": "$._metadata.idempotencyKeyResource", "version": "$.order.updatedAt"},
    "envelope_columns": [{"name": "message_id", "type": "STRING"}, {"name": "publish_time", "type": "TIMESTAMP"}],
    "payload_columns": [
        {"name": "order_id", "path": "$.order.id", "type": "STRING", "cde": True},
        {"name": "quantity", "path": "$.order.quantity", "type": "INT", "rules": {"min": 0, "max": 1000}},
        {"name": "total", "path": "$.order.total", "type": "BIGINT"},
        {"name": "amount", "path": "$.order.amount", "type": "DECIMAL(18,2)", "cde": True, "rules": {"min": 0}},
        {"name": "rate", "path": "$.order.rate", "type": "DOUBLE", "rules": {"max": 0.5}},
        {"name": "paid", "path": "$.order.paid", "type": "BOOLEAN", "default": "false"},
        {"name": "due", "path": "$.order.due", "type": "DATE", "rules": {"min": "2000-01-01"}},
        {"name": "placed", "path": "$.order.placedAt", "type": "TIMESTAMP", "rules": {"max": "2030-01-01T00:00Z"}},
        {"name": "shipped", "path": "$.order.shippedAt", "type": "TIMESTAMP", "format": "epoch_ms"},
        {"name": "settled", "path": "$.order.settledAt", "type": "TIMESTAMP", "format": "epoch_s",
         "rules": {"min": "1970-01-01T00:00:00Z"}},
        {"name": "status", "path": "$.order.status", "type": "STRING", "default": "NEW",
         "rules": {"allowed": ["NEW", "PAID", "CANCELLED"]}},
        {"name": "level", "path": "$.order.level", "type": "INT", "default": "1", "rules": {"allowed": [1, 2, 3]}},
        {"name": "code", "path": '$.order["the code"]', "type": "STRING", "rules": {"pattern": "[A-Z]{2}[0-9]+"}},
        {"name": "label", "path": "$.order.label", "type": "STRING", "rules": {"min_length": 2, "max_length": 5}},
        {"name": "note", "type": "STRING"},
        {"name": "email", "path": "$.customer.email", "type": "STRING", "pii": "hmac"},
        {"name": "card", "path": "$.customer.card", "type": "STRING", "pii": "mask"},
        {"name": "secret", "path": "$.customer.secret", "type": "STRING", "pii": "drop"},
    ],
}

# JSON texts of the members of $.order: those the schema takes, then those it refuses.
ORDER = {
    "id": (['"o1"', '"o2"', "7", "1e10", "[1 , 2]"], ["null", '""', '" \\t\\u000b"', "{}", '{"x":1}']),
    "quantity": (
        ["0", "1", "1.0", "10e1", '"007"', "-0", '"+5"', "1000", "0e99999999999999999999"],
        ["1.5", '"1 "', '""', '"\\u0661"', "2147483648", "-1", "1001", "1e400", "true", "[1]", '"0x1"'],
    ),
    "total": (
        ["9223372036854775807", "-9223372036854775808", "1e18", "null"],
        ["9223372036854775808", "-9223372036854775809", "1e19", "1e-1"],
    ),
    "amount": (
        ["1.10", "0", "12.5", "9999999999999999.99", "1e15", "100000e-5", "0.000", '"3.00"'],
        ["null", '"  "', "-0.01", "0.001", "10000000000000000", '"1,5"', '"NaN"', "1e999999999"],
    ),
    "rate": (
        ["0.5", "1e-300", "-1E5", "-0", "0.1", "4.9e-324"],
        ["0.6", "1e400", "1e-400", '"Infinity"', '".5"', '"0.1f"'],
    ),
    "paid": (["true", "false", '"TRUE"', '"False"', "null"], ["1", '"yes"', '" true"', '"t"']),
    "due": (
        ['"2024-02-29"', '"2000-01-01"', '"9999-12-31"'],
        ['"2023-02-29"', '"1999-12-31"', '"2024-2-1"', "20240201", '"2024-02-01T00:00:00"'],
    ),
    "placedAt": (
        ['"2024-01-31T23:59:59.123456Z"', '"2024-01-31 10:00"', '"2024-01-31T10:00:00+05:30"',
         '"2024-06-01T01:02:03-0800"', '"2024-01-31T10:00:00.123456000+01"', '"1969-12-31T23:59:59.999999"',
         '"2024-01-31T10:00:00.5-18:00"'],
        ['"2024-01-31"', '"2024-01-31T24:00:00Z"', '"2024-01-31T10:00:00.1234567Z"', '"2024-01-31t10:00:00z"',
         "1706695200", '"2030-01-01T00:00:01Z"', '"2024-01-31T10:00:00+18:01"', '"2024-01-31  10:00:00"',
         '"2024-01-31T10:00:60Z"'],
    ),
    "shippedAt": (
        ["2000000000000", "-1", "0", "1.7e12", "+253402300799999".join('""'), "-62135596800000", "1794733037123.0"],
        ["253402300800000", "-62135596800001", "1.5", '"soon"', '""', "1e18", "9223372036854775808"],
    ),
    "settledAt": (
        ["1794733037", "0", "7e2", '"+7"', "7.0", "253402300799", "null"],
        ["1764547200000", "999999999999", "253402300800", "-1", "-62135596801", "0.5"],
    ),
    "status": (['"NEW"', '"PAID"', "null"], ['"new"', '"PAID "', '""']),
    "level": (["1", "2.0", "3", "null"], ["4", '"one"']),
    "the code": (['"AB12"', '"ZZ0"'], ['"AB12\\n"', '"ab1"', '"xAB1"']),
    "label": (
        ['"ab"', '"\\ud83d\\ude00\\ud83d\\ude00\\ud83d\\ude00"', '"abcde"'],
        ['"a"', '"abcdef"', '"\\ud83d\\ude00"'],
    ),
}

# None of these may give the name `note`, which the schema reads by name: such names depend on the batches.
ODD_KEYS = [
    "a.b", "a_b", "userId", "userid", "user_id", "USER-ID", "message_id", "_batch_id", "record_key", "_rescued",
    "_file", "_pos", "__row_operation", "__original_row_id__pos", "__row_from_source", "__original_row_id__file",
    "publish_time_day", "__v",
    "a`b", 'q"q', "x;--", "new\nline", "\u200frtl", "x" * 300, "x" * 299 + "y", "", "1st", "日本",
    "\u0130", "\u212a", "a\\b", "nul\x00", "😀", "$", "[0]", "it's", "drop table t",
]
NESTED_KEYS = ["a", "b", "a.b", "x_y", ""]
SCALARS = [
    "1.10", "1e10", "12345678901234567890.12", "-0", "1E+2", '"text"', "true", "false", '""', '"  "', '"null"',
    "null", '"\\u00e9\\ud83d\\ude00"',
    '"\\u0000"', '"a\\"b\\\\\\/\\n"', '"日本"', '"2024-01"', "0.1e-7", '"\u2028\x7f"',
]
ARRAYS = ["[]", "[ ]", "[1 ,2]", '[\n {"a" : 1.10}\t]', '[[["x"]], null]', '["\\u0041", {"a":1,"a":2}]', "[[],{}]"]
KEYS = ['"k1"', '"k2"', '"k3"', '"k4"', '"k5"', '" k1"', "5", "5.0", "true", '"\\u00e9"']
NO_KEYS = ["null", '""', '" \\t"', "{}", '{"x":"k1"}', '["k1"]', '"' + "k" * 1025 + '"', '"' + "é" * 513 + '"']
PERIODS = ['"2024-01"', '"2024-02"', '"2023-12"', '"1970-01"', '"2100-12"']
NO_PERIODS = ['"1969-12"', '"2101-01"', '"2024-13"', '"2024-1"', '"2024-01 "', "202401", '["2024-01"]', "null", "{}"]
NO_VERSIONS = ["null", '""', '"soon"', "1706695200000", '"2024-01-31"', '"2024-01-31T10:00:00 Z"', '{"x":1}', "[]"]

NOT_JSON = [
    "", " ", "{", '{"a":1', "{'a':1}", '{"a":NaN}', '{"a":-Infinity}', '{"a":01}', '{"a":1.}', '{"a":.5}', '{"a":+1}',
    '{"a":"\\ud800"}', '{"\\udc00\\ud800":1}', '{"a":["\\ud800"]}', '{"a":[1,]}', '{"a":[01]}', '{"a":1,}', "{,}",
    "{a:1}", '{"a":"\x01"}', '{"a":"line\nbreak"}', '{"a":"\\x41"}', '{"a" 1}', '{"a":[1}', '{"a":True}', "hello",
    "\ufeff{}", '{"a":1 "b":2}', '{"a":tru}', '{"a":"\\u12"}', "[1,", "[1] x", '{"a":"open}', "{\x0c}", "<a/>",
    '{"a":[1 2]}', '{"a":1e}', '{"a":--1}', '{"a":nullx}', "1 2", "01", '{"a":["\t"]}', '{1:"a"}', '{"a":}',
]
TRAILING = ['{"a":1}x', "{} {}", '{"a":1}}', "{},", '{"a":1}\x0c', '{"a":1}// no', "{}\x00", '{"a":1}\n{"a":2}\n']
NOT_OBJECT = ["[1]", "1", '"x"', "null", " true ", "[]", '[{"a":1}]', "-0.0"]
# fmt: on
