# Prints of a lock what a bridge runs with: the packages named here, and those that the lock says are there for them.
# A package, its hashes and the lines that say what it is there for are one paragraph.
BEGIN {
    split("annotated-types duckdb google-re2 jinja2 msgspec pyarrow pydantic pyiceberg rich sqlalchemy structlog tenacity typer " \
          "psycopg boto3 google-cloud-pubsub prometheus-client setuptools", names)
    for (at in names) wanted[names[at]] = 1
}
/^[A-Za-z0-9]/ {
    split($1, parts, /[=<>;[]/)
    name = parts[1]
    order[++count] = name
}
name {
    text[name] = text[name] $0 "\n"
}
name && /^ +# / {
    asker = $NF == "via" ? "" : $2 == "via" ? $3 : $2
    sub(/\[.*/, "", asker)
    askers[name] = askers[name] " " asker
}
END {
    do {
        found = 0
        for (at = 1; at <= count; at++) {
            if (order[at] in wanted) continue
            split(askers[order[at]], each, " ")
            for (one in each) if (each[one] in wanted) { wanted[order[at]] = 1; found = 1 }
        }
    } while (found)
    for (at = 1; at <= count; at++) if (order[at] in wanted) printf "%s", text[order[at]]
}
