"""The operator's choices, from the environment."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from serving.__main__ import commands
from serving.settings import Settings


def test_every_setting_is_described() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_a_local_triton_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETROV_TRITON_HTTP_PORT", "9001")
    settings = Settings()
    assert settings.embedded
    assert settings.triton_address == "127.0.0.1:9001"
    assert settings.triton_grpc_address == "127.0.0.1:8001"


def test_a_triton_that_runs_elsewhere_has_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PETROV_TRITON", "one:8000")
    settings = Settings()
    assert not settings.embedded
    assert settings.triton_address == "one:8000"
    assert settings.triton_grpc_address == ""
    assert Settings.model_validate({"triton_grpc": "one:8001"}).triton_grpc_address == "one:8001"
    with pytest.raises(ValidationError, match="for several Tritons name a load balancer"):
        Settings.model_validate({"triton": "one:8000,two:8000"})


@pytest.mark.parametrize(
    "address",
    ["host", ":8001", "host:", "host:0", "host:99999", "http://host:8000", "host:8000 ", "user@host:8000", "::1:8000"],
)
@pytest.mark.parametrize("name", ["triton", "triton_grpc"])
def test_an_address_without_host_and_port_is_refused(name: str, address: str) -> None:
    with pytest.raises(ValidationError, match="expected HOST:PORT"):
        Settings.model_validate({name: address})


@pytest.mark.parametrize("address", ["triton:8000", "10.0.0.1:8000", "[::1]:8000", "triton.models.svc:8000"])
def test_an_address_has_a_name_or_a_number(address: str) -> None:
    assert Settings.model_validate({"triton": address}).triton_address == address


@pytest.mark.parametrize("url", ["127.0.0.1:4318", "http://127.0.0.1:4318", "grpc://host/v1/traces", "http:// /v1"])
def test_an_address_of_a_collector_has_a_scheme_and_a_path(url: str) -> None:
    with pytest.raises(ValidationError, match=r"expected an address such as http.*/v1/traces but got"):
        Settings.model_validate({"traces": url})


@pytest.mark.parametrize("name", ["repository", "triton_runtime", "triton_environment"])
def test_an_empty_folder_is_not_the_working_folder(name: str) -> None:
    with pytest.raises(ValidationError, match="expected a folder but got nothing"):
        Settings.model_validate({name: ""})


@pytest.mark.parametrize("name", ["gpu_memory", "model_memory"])
def test_an_amount_without_a_unit_is_no_budget_of_bytes(name: str) -> None:
    for amount in ("7", "7000", "-1"):
        with pytest.raises(ValidationError, match=name):
            Settings.model_validate({name: amount})
    found = [getattr(Settings.model_validate({name: amount}), name) for amount in ("", "0", "7GiB", 2**30)]
    assert found == [None, 0, 7 * 2**30, 2**30]


@pytest.mark.parametrize("value", ["inf", "nan", "-1", "0", "1e9"])
@pytest.mark.parametrize("name", ["triton_start_seconds", "receive_seconds", "request_seconds", "drain_seconds"])
def test_an_absurd_time_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_body_bytes", "-1"),
        ("max_bytes_in_flight", "1e30"),
        ("max_requests_in_flight", "0"),
        ("port", "65536"),
    ],
)
def test_an_absurd_limit_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ValidationError, match=name):
        Settings.model_validate({name: value})


def test_the_command_names_the_variable_of_an_absurd_value() -> None:
    done = CliRunner().invoke(commands, ["gateway"], env={"PETROV_RECEIVE_SECONDS": "inf"})
    assert done.exit_code == 2
    assert "PETROV_RECEIVE_SECONDS" in done.output


def test_a_setting_that_is_gone_ends_the_start_with_what_replaces_it() -> None:
    done = CliRunner().invoke(commands, ["gateway"], env={"PETROV_WORKERS": "2"})
    assert done.exit_code == 2
    assert "PETROV_WORKERS is no longer a setting" in done.output
    assert "replicas" in done.output


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("PETROV_KEYZ", "keys.toml", "PETROV_KEYZ is no setting; did you mean PETROV_KEYS?"),
        ("PETROV_KEYS", "", "PETROV_KEYS is empty: name a file of keys"),
    ],
)
def test_a_misspelled_variable_does_not_leave_the_service_open(name: str, value: str, says: str) -> None:
    done = CliRunner().invoke(commands, ["gateway", "--triton", "127.0.0.1:1"], env={name: value})
    assert done.exit_code == 2
    assert says in done.output


def test_all_wrong_settings_are_lines_of_the_log() -> None:
    wrong = {"PETROV_PROT": "1", "PETROV_TRITON": "http://a", "PETROV_LOG_LEVEL": "INFO", "PETROV_LOG_FORMAT": "json"}
    done = CliRunner().invoke(commands, [], env=wrong)
    lines = [json.loads(line) for line in done.output.splitlines()]
    assert (done.exit_code, {line["level"] for line in lines}) == (2, {"critical"})
    assert [line["message"].split()[0].rstrip(":") for line in lines] == list(wrong)[:3]
    assert 'PETROV_TRITON: expected HOST:PORT but got "http://a"' in lines[1]["message"]


def test_settings_cannot_be_changed_and_unknown_ones_are_refused() -> None:
    with pytest.raises(ValidationError):
        Settings().port = 1  # type: ignore[misc]  # that is the point
    with pytest.raises(ValidationError):
        Settings.model_validate({"prot": 1})
