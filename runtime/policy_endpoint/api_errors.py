"""Errors of the endpoint, in the form that OpenAI's clients read."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ApiError",
    "bad_request",
    "context_too_long",
    "episode_ended",
    "out_of_requests",
    "timed_out",
    "unknown_model",
    "unsupported",
    "wrong_key",
]


class ApiError(Exception):
    """A request that gets no reply; the client's library raises it under the same status."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.code = code

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}}


def bad_request(message: str, param: str | None = None) -> ApiError:
    return ApiError(400, message, param=param, code="invalid_value")


def unsupported(param: str, message: str) -> ApiError:
    return ApiError(400, message, param=param, code="unsupported_parameter")


def wrong_key() -> ApiError:
    return ApiError(
        401,
        "this API key is neither that of an episode under way nor the one that 'agym serve' printed",
        code="invalid_api_key",
    )


def episode_ended() -> ApiError:
    # 403, which clients do not try again
    return ApiError(403, "the episode of this API key has ended", kind="permission_error", code="episode_ended")


def unknown_model(name: str, known: list[str]) -> ApiError:
    return ApiError(
        404,
        f"there is no model '{name[:60]}' here, only {', '.join(known)}",
        param="model",
        code="model_not_found",
    )


def context_too_long(tokens: int, limit: int) -> ApiError:
    return ApiError(
        400,
        f"the messages have {tokens} tokens, and the context holds {limit}, the reply included",
        param="messages",
        code="context_length_exceeded",
    )


def out_of_requests(limit: int) -> ApiError:
    return ApiError(
        403,
        f"the episode has made its {limit} requests ('agent.harness.requests')",
        kind="insufficient_quota",
        code="insufficient_quota",
    )


def nothing_to_show() -> ApiError:
    return ApiError(
        403,
        "the expert that replies in this episode has nothing more to show",
        kind="insufficient_quota",
        code="insufficient_quota",
    )


def timed_out(seconds: float) -> ApiError:
    return ApiError(504, f"no reply within {seconds:g} s", kind="server_error", code="timeout")
