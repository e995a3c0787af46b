"""Makes a failing kernel small: statements are dropped, or what they define becomes a constant, as long as it still fails."""

from __future__ import annotations

import re
import time
from dataclasses import replace

from .case import Case, Statement


def shrink(case: Case, fails, seconds: float) -> Case:
    """The smallest kernel found within the time; `fails` says of a kernel whether it still does."""
    until = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in _candidates(case):
            if time.monotonic() > until:
                return case
            # The first of a round that still fails is the start of the next: positions have moved.
            if fails(candidate):
                case, smaller = candidate, True
                break
    return case


def _candidates(case: Case):
    if case.grid != (1, 1, 1):
        yield replace(case, grid=(1, 1, 1))
    places = list(_places(case.statements, ()))
    # Many at once, from the back, first: nearly all of a kernel is unneeded.
    for share in (2, 4):
        step = len(places) // share
        for start in range(len(places) - step, 0, -step) if step > 1 else ():
            statements = case.statements
            for place in reversed(places[start : start + step]):
                statements = _replaced(statements, place, [])
            yield case.with_statements(statements)
    for place in reversed(places):
        statement = _at(case.statements, place)
        yield case.with_statements(_replaced(case.statements, place, []))
        for body in statement.bodies:
            yield case.with_statements(_replaced(case.statements, place, body))
        if statement.defines and not any("tl.full" in line for line in statement.lines):
            constants = [f"{value.name} = tl.full({list(value.shape)}, 1, {value.element.triton})" for value in statement.defines]
            yield case.with_statements(_replaced(case.statements, place, [Statement(constants, statement.defines)]))
    if len(case.parameters) > 1:
        text = "\n".join(line for statement in case.statements for line in statement.text(0))
        used = [given for given in case.parameters if re.search(rf"\b{given[0]}\b", text)]
        if len(used) < len(case.parameters):
            yield replace(case, parameters=used)


def _places(statements: list[Statement], before: tuple):
    """Where each statement is: an index, or an index, the number of a body, an index inside, ..."""
    for index, statement in enumerate(statements):
        yield (*before, index)
        for number, body in enumerate(statement.bodies):
            yield from _places(body, (*before, index, number))


def _at(statements: list[Statement], place: tuple) -> Statement:
    for index, number in zip(place[:-1:2], place[1::2], strict=True):
        statements = statements[index].bodies[number]
    return statements[place[-1]]


def _replaced(statements: list[Statement], place: tuple, by: list[Statement]) -> list[Statement]:
    index, *rest = place
    if not rest:
        return statements[:index] + by + statements[index + 1 :]
    number, *inside = rest
    if index >= len(statements):
        return statements
    statement = statements[index]
    bodies = list(statement.bodies)
    bodies[number] = _replaced(bodies[number], tuple(inside), by)
    return [*statements[:index], replace(statement, bodies=bodies), *statements[index + 1 :]]
