"""Settings: from the environment, checked, and in the README as they are in the code."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from collector.errors import InvalidField
from collector.settings import Settings, address, variable
from collector.store.cloud import CloudStore
from collector.store.open import store_for
from collector.store.selfhosted import SelfHostedStore

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_readme_lists_every_setting_as_it_is() -> None:
    rows = re.findall(r"^\| `(COLLECTOR_\w+)` \| (.+?) \| (.+?) \|$", README, re.M)

    assert rows == [
        (
            variable(each.name),
            "–" if each.default is None else f"`{each.default}`",
            each.metadata["about"],
        )
        for each in fields(Settings)
    ]


def test_settings_come_from_their_variables() -> None:
    settings = Settings.from_environment(
        {"COLLECTOR_PORT": "9000", "COLLECTOR_HOST": "::1", "OTHER": "x", "COLLECTOR_LOG_LEVEL": ""}
    )

    assert settings == Settings(port=9000, host="::1")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("COLLECTOR_PORT", "eighty"),
        ("COLLECTOR_PORT", "70000"),
        ("COLLECTOR_QUEUE_LIMIT", "3"),
        ("COLLECTOR_VERIFIERS", "0"),
        ("COLLECTOR_LOG_LEVEL", "loud"),
        ("COLLECTOR_METRICS_LISTEN", "9100"),
        ("COLLECTOR_METRICS_LISTEN", "127.0.0.1:65536"),
        ("COLLECTOR_METRICS_LISTEN", "::1:9100"),
        ("COLLECTOR_METRICS_KEY", "fifteen-letters"),
        ("COLLECTOR_METRICS_KEY", "sixteen letters!"),
    ],
)
def test_a_wrong_setting_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(InvalidField, match=name):
        Settings.from_environment({name: value})


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://h/d", "sqlite://", "sqlite:///:memory:"])
def test_a_store_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(InvalidField, match="COLLECTOR_STORE_URL"):
        store_for(Settings(store_url=url))


@pytest.mark.parametrize(
    ("listen", "place"),
    [("127.0.0.1:9100", ("127.0.0.1", 9100)), ("[::1]:0", ("::1", 0)), ("h.lan:80", ("h.lan", 80))],
)
def test_an_address_is_a_host_and_a_port(listen: str, place: tuple[str, int]) -> None:
    settings = Settings(metrics_listen=listen)

    assert settings.metrics_listen is not None
    assert address(settings.metrics_listen) == place


@pytest.mark.parametrize("url", ["postgresql://u@h/d", "postgresql+asyncpg://u@h/d"])
def test_a_store_url_names_its_store(url: str) -> None:
    assert isinstance(store_for(Settings(store_url=url)), CloudStore)
    assert isinstance(store_for(Settings(store_url="sqlite:///a.db")), SelfHostedStore)


def test_a_secret_that_is_set_and_empty_is_refused() -> None:
    with pytest.raises(InvalidField, match="COLLECTOR_METRICS_KEY: is set and empty"):
        Settings.from_environment({"COLLECTOR_METRICS_KEY": ""})
