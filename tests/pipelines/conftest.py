"""A gateway's log made line by line, and a cheap stand-in for Great Expectations, whose import takes long."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from pipelines.suites import Outcome


@dataclass
class GatewayLog:
    """Writes LiteLLM payload lines, one file per name."""

    folder: Path
    calls: int = 0

    def write(self, name: str, *started: datetime, **changes) -> Path:
        """Append one call per instant: 100 input tokens, 20 output tokens, 0.01 USD."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        with path.open("a", encoding="utf-8") as file:
            for at in started:
                self.calls += 1
                file.write(json.dumps({**_call(at, self.calls), **changes}) + "\n")
        return path


def _call(at: datetime, number: int) -> dict:
    usage = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return {
        "id": f"chatcmpl-{number}",
        "litellm_call_id": f"call-{number}",
        "call_type": "acompletion",
        "custom_llm_provider": "openai",
        "model": "gpt-5-mini",
        "status": "success",
        "startTime": at.timestamp(),
        "endTime": (at + timedelta(seconds=2)).timestamp(),
        "metadata": {"user_api_key_team_alias": "data", "usage_object": usage},
        "response_cost": 0.01,
        **usage,
        "hidden_params": {"response_cost": 0.01},
        "model_parameters": {},
    }


@pytest.fixture
def gateway_log(tmp_path) -> GatewayLog:
    """A log folder to write into."""
    return GatewayLog(tmp_path / "logs")


def plain_validate(profile, suite) -> list[Outcome]:
    """Rules by comparison alone: what Great Expectations has to agree with."""
    outcomes = []
    for rule in suite.rules:
        value = profile[rule.column][0] if rule.column in profile.columns else None
        passed = value is not None and rule.low <= value <= rule.high
        detail = f"found {value}, allowed {rule.low:g}"
        outcomes.append(
            Outcome(f"{suite.table.name}: {rule.column}", rule.severity, passed, detail, raised=value is None)
        )
    return outcomes


@pytest.fixture
def cheap_checks(monkeypatch) -> None:
    """Checks run without Great Expectations."""
    monkeypatch.setattr("pipelines.checks.validate", plain_validate)
    monkeypatch.setattr("pipelines.audit._importing_meanwhile", lambda site: site)
