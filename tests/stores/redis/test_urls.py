"""Store URLs for Redis and Valkey: what they say, and that a bad one is explained without telling a secret."""

import pytest

from ade.errors import InvalidUrl
from ade.stores.redis.client.options import RedisAddress, RedisLogin, TlsOptions, TopologyKind, parse_url
from ade.stores.redis.keys import names_of
from tests.domain import RedisSettings


def test_one_server_needs_no_more_than_a_host() -> None:
    place = parse_url("redis://localhost")

    assert (place.kind, place.addresses, place.db) == (TopologyKind.SERVER, (RedisAddress("localhost", 6379),), 0)
    assert (place.login, place.tls) == (RedisLogin(), None)


def test_user_password_and_database_are_percent_decoded() -> None:
    place = parse_url("redis://us%3Aer:p%40ss%2Fw%25rd@10.0.0.1:7000/3")

    assert (place.login, place.db) == (RedisLogin("us:er", "p@ss/w%rd"), 3)
    assert place.addresses == (RedisAddress("10.0.0.1", 7000),)


def test_a_password_may_stand_without_a_user() -> None:
    assert parse_url("redis://:secret@localhost/0").login == RedisLogin(None, "secret")


def test_an_ipv6_address_stands_in_brackets() -> None:
    place = parse_url("redis+cluster://[::1]:7000,[fe80::2]")

    assert place.addresses == (RedisAddress("::1", 7000), RedisAddress("fe80::2", 6379))
    assert str(place.addresses[0]) == "[::1]:7000"


def test_an_encrypted_line_names_its_files() -> None:
    assert parse_url("rediss://h").tls == TlsOptions()
    assert parse_url("rediss://h?ca=/a%20b.pem&cert=/c.pem&key=/k.pem").tls == TlsOptions(
        ca="/a b.pem", cert="/c.pem", key="/k.pem"
    )
    assert parse_url("rediss://h?insecure=1").tls == TlsOptions(insecure=True)
    assert parse_url("rediss://h?ssl_ca_certs=/a.pem").tls == TlsOptions(ca="/a.pem")
    assert parse_url("redis+cluster://h?tls=1").tls == TlsOptions()
    assert parse_url("redis+sentinel://h/s?tls=0").tls is None


def test_sentinels_name_a_service_and_may_have_a_password_of_their_own() -> None:
    place = parse_url("redis+sentinel://u:pw@a,b:1,c/my%2Fmaster/2?sentinel_username=w&sentinel_password=x%26y")

    assert place.kind is TopologyKind.SENTINEL
    assert place.addresses == (RedisAddress("a", 26379), RedisAddress("b", 1), RedisAddress("c", 26379))
    assert (place.service, place.db) == ("my/master", 2)
    assert (place.login, place.sentinel_login) == (RedisLogin("u", "pw"), RedisLogin("w", "x&y"))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("http://localhost", "must begin with"),
        ("redis://", "no host"),
        ("redis://:s3cret", "host is empty"),
        ("redis://user@host", "user without a password"),
        ("redis://host:s3cret", "port is not a number"),
        ("redis://host:0", "port is not a number"),
        ("redis://host:65536", "port is not a number"),
        ("redis://host:²", "port is not a number"),
        ("redis://host/one", "database is not a number"),
        ("redis://host/1/2", "database is not a number"),
        ("redis://a,b", "several hosts"),
        ("redis://[::1", "brackets"),
        ("redis://u:s3/cret@host", "database is not a number"),
        ("redis://u:s3?cret@host", "not followed by option=value"),
        ("redis://u:s3?x=cret@host", "unknown option"),
        ("redis://u:s3#cret@host", "there is a #"),
        ("redis://host?ca=/x", "rediss://"),
        ("redis+cluster://host?ca=/x", "tls=1"),
        ("rediss://host?key=/x", "without cert"),
        ("rediss://host?insecure=maybe", "must be 1 or 0"),
        ("rediss://host?ca=/a&ca=/b", "given twice"),
        ("redis+sentinel://host", "no service"),
        ("redis+cluster://host/1", "no databases"),
        ("redis://host?sentinel_password=s3cret", "unknown option"),
    ],
)
def test_a_bad_url_is_explained_without_its_secrets(url: str, says: str) -> None:
    with pytest.raises(InvalidUrl) as refusal:
        parse_url(url)

    assert says in refusal.value.detail
    assert "s3" not in refusal.value.detail
    assert "cret" not in refusal.value.detail


@pytest.mark.parametrize(
    "url",
    [
        "redis://u:s3cret@h:1/2",
        "rediss://:s3cret@h",
        "redis+sentinel://u:s3cret@h/svc?sentinel_password=s3cret",
        "redis+cluster://u:s3cret@h",
    ],
)
def test_a_place_can_be_shown_to_anybody(url: str) -> None:
    place = parse_url(url)

    assert "s3cret" not in f"{place} {place!r} {place.login!r}"
    assert parse_url(str(place)).addresses == place.addresses


def test_names_that_are_set_are_used_as_they_are_and_get_a_tag_in_a_cluster() -> None:
    usual, chosen = (
        RedisSettings(),
        RedisSettings(task_stream="stream:task", group="cg:workers", result_stream="stream:result"),
    )

    assert names_of(usual, None).tasks == "ade:queue:tasks"
    assert names_of(usual, 3).tasks == "ade:{p3}:queue:tasks"
    assert (names_of(chosen, None).tasks, names_of(chosen, None).group) == ("stream:task", "cg:workers")
    assert (names_of(chosen, 3).tasks, names_of(chosen, 3).results) == ("{p3}:stream:task", "{p3}:stream:result")
    assert names_of(chosen, 3).dlq == "ade:{p3}:queue:dlq"
