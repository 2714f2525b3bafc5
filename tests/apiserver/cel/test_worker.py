"""The worker's service: what answers which request, and what it keeps."""

from __future__ import annotations

import socket
import threading
from typing import Any

import msgspec
import pytest

from moorage.apiserver.cel.messages import (
    Answer,
    CheckObject,
    CheckPolicy,
    CheckSchema,
    CheckTypes,
    Decision,
    EvaluateMutation,
    EvaluatePolicy,
    KeepSchema,
    Mutation,
    PolicyInput,
    PolicyResult,
    Question,
    Reply,
    Request,
    Verdict,
    Violation,
)
from moorage.apiserver.cel.worker import HEADER_BYTES, Compiled, Service, serve

GIVEN = PolicyInput(request={"operation": "CREATE"}, object={"n": 3})


def schema(rule: str) -> dict[str, Any]:
    text = {"type": "string", "x-kubernetes-validations": [{"rule": rule}]}
    return {"type": "object", "properties": {"text": text}}


def validating(expression: str) -> dict[str, Any]:
    return {"validations": [{"expression": expression}], "paramKind": {"kind": "X"}}


def mutating(expression: str) -> dict[str, Any]:
    configuration = {"expression": expression}
    return {"mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": configuration}]}


KIND = {"type": "object", "properties": {"n": {"type": "integer"}}}
CHECK = CheckObject("k", {"text": "x"}, None)
VALIDATE = EvaluatePolicy("k", None, GIVEN, [{"most": 2}, {"most": 4}])
MUTATE = EvaluateMutation("k", None, GIVEN, None, 0)
TOO_MANY = PolicyResult([Decision("failed expression: object.n < params.most")])
COMPILATION = "compilation error: ERROR: <input>:1:"


def filled() -> Service:
    service = Service()
    assert service.answer(KeepSchema("k", schema("self != 'x'"))) == ""
    service.answer(msgspec.structs.replace(VALIDATE, policy=validating("object.n < params.most")))
    service.answer(msgspec.structs.replace(MUTATE, policy=mutating("Object{n: object.n + 1}")))
    return service


@pytest.mark.parametrize("request_", [CHECK, VALIDATE, MUTATE])
def test_a_request_whose_source_is_not_there_is_answered_by_nothing(request_: Request) -> None:
    assert Service().answer(request_) is None
    assert filled().answer(msgspec.structs.replace(request_, key="other")) is None


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (CHECK, [Violation("text", "failed rule: self != 'x'", value="x")]),
        (CheckObject("k", {"text": "y"}, None), []),
        (VALIDATE, [TOO_MANY, PolicyResult()]),
        (MUTATE, Mutation(value={"n": 4})),
    ],
)
def test_a_request_needs_its_source_once(request_: Request, answer: Any) -> None:
    assert filled().answer(request_) == answer


def test_a_schema_without_rules_is_kept_too() -> None:
    service = Service()
    assert service.answer(KeepSchema("k", {"type": "object"})) == ""
    assert service.answer(CHECK) == []


def test_expressions_are_checked() -> None:
    service = Service()
    assert service.answer(CheckSchema(schema("self != 'x'"))) == []
    assert service.answer(CheckPolicy(validating("object.n < params.most"))) == []
    assert service.answer(CheckTypes(validating("object.n < 1"), KIND, None)) == []
    (rule,) = service.answer(CheckSchema(schema("self +")))
    assert rule.path == ".properties[text].x-kubernetes-validations[0].rule"
    (expression,) = service.answer(CheckPolicy(validating("object +")))
    assert expression.path == ".validations[0].expression"
    (field,) = service.answer(CheckTypes(validating("object.m < params.a"), KIND, KIND))
    assert "undefined field 'm'" in field.detail


def test_what_does_not_compile_is_answered_by_its_error() -> None:
    service = Service()
    assert service.answer(KeepSchema("k", schema("absent()"))).startswith("ERROR: <input>:1:7")
    results = service.answer(msgspec.structs.replace(VALIDATE, policy=validating("absent()")))
    assert [len(result.decisions) for result in results] == [1, 1]
    for result in results:
        assert result.decisions[0].is_error
        assert result.decisions[0].message.startswith(COMPILATION)
    mutation = service.answer(msgspec.structs.replace(MUTATE, policy=mutating("absent()")))
    assert mutation.error.startswith(COMPILATION)


def test_what_was_used_longest_ago_is_forgotten() -> None:
    made: list[int] = []
    compiled = Compiled(lambda source: made.append(source["n"]) or source["n"])
    for number in range(256):
        compiled.get(str(number), {"n": number})
    assert compiled.get("0", None) == 0
    assert compiled.get("256", {"n": 256}) == 256
    assert [compiled.has(key) for key in ("0", "1", "2", "256")] == [True, False, True, True]
    assert made == list(range(257))


def test_messages_have_their_length_before_them_and_questions_come_before_answers() -> None:
    own, theirs = socket.socketpair()
    serving = threading.Thread(target=serve, args=(theirs,))
    serving.start()
    with own, own.makefile("rb") as incoming:

        def send(message: Any) -> None:
            body = msgspec.msgpack.encode(message)
            own.sendall(len(body).to_bytes(HEADER_BYTES) + body)

        def receive() -> Any:
            body = incoming.read(int.from_bytes(incoming.read(HEADER_BYTES)))
            return msgspec.msgpack.decode(body, type=Reply)

        assert isinstance(receive(), Answer)
        policy = validating("authorizer.path('/x').check('get').allowed()")
        send(EvaluatePolicy("k", policy, GIVEN, [None]))
        question = receive()
        assert isinstance(question, Question)
        assert (question.check.verb, question.check.path) == ("get", "/x")
        send(Verdict(is_allowed=True))
        answer = receive()
        assert msgspec.msgpack.decode(answer.body, type=list[PolicyResult]) == [PolicyResult()]
        assert 0 < answer.cpu_s < 5
    serving.join(10)
    assert not serving.is_alive()
