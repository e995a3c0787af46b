"""Operations of random kernels element by element: arithmetic, comparisons, choices and conversions."""

from __future__ import annotations

from .elements import ALL, BF16, BOOL, F16, F32, F64, FLOATS, INTEGERS, Element

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def pair(maker, accept):
    """Two values of one element type whose shapes broadcast, as text, and what comes out of an operation on them."""
    a = maker.pick(accept)
    if a is None:
        return None
    fits = lambda v: v.element is a.element and (v.shape in (a.shape, ()) or (len(v.shape) == len(a.shape) and all(m in (n, 1) for m, n in zip(v.shape, a.shape, strict=True))))
    b = maker.pick(fits)
    return (b, a, a.shape) if maker.random.random() < 0.4 else (a, b, a.shape)


def integers(maker):
    """+, -, *, bits, shifts, division and remainder (towards zero, of negative numbers too)."""
    chosen = pair(maker, lambda v: v.element.is_integer)
    if chosen is None:
        return
    a, b, shape = chosen
    element, random = a.element, maker.random
    bits = element.bits - 1
    literal = random.randrange(1, 8)
    divisor = f"(({b.name} & 7) + 1)"
    if element.kind == "signed":
        divisor = random.choice((divisor, f"tl.where(({b.name} & 8) == 0, ({b.name} & 7) + 1, -(({b.name} & 7) + 2))"))
    choices = [
        f"{a.name} + {b.name}",
        f"{a.name} - {b.name}",
        f"{a.name} * {b.name}",
        f"{a.name} & {b.name}",
        f"{a.name} | {b.name}",
        f"{a.name} ^ {b.name}",
        f"{a.name} // {divisor}",
        f"{a.name} % {divisor}",
        f"{a.name} // {literal}",
        f"{a.name} % {literal + 1}",
        f"{a.name} << ({b.name} & {bits})",
        f"{a.name} >> ({b.name} & {bits})",
        f"{a.name} >> {min(literal, bits)}",
        f"tl.minimum({a.name}, {b.name})",
        f"tl.maximum({a.name}, {b.name})",
        f"{a.name} * {literal} + {b.name}",
        f"~{a.name} + {b.name}",
        f"-{a.name} - {b.name}",
    ]
    if element.kind == "signed":
        choices.append(f"tl.abs({a.name}) + {b.name}")
    if element.bits >= 32:
        choices.append(f"tl.umulhi({a.name}, {b.name})")
    maker.define(f"({random.choice(choices)}).to({element.triton})", element, shape)


def floats(maker):
    """What IEEE 754 rounds in one way only, so that results are equal to the last bit."""
    chosen = pair(maker, lambda v: v.element.is_float)
    if chosen is None:
        return
    a, b, shape = chosen
    element, random = a.element, maker.random
    nan = random.choice(("", ", propagate_nan=tl.PropagateNan.ALL"))
    # The sum with zero makes both zeros one: which of them is the smaller is not defined.
    choices = [
        (f"{a.name} + {b.name}", "add"),
        (f"{a.name} - {b.name}", "add"),
        (f"{a.name} * {b.name}", "multiply"),
        (f"{a.name} / {b.name}", None),
        (f"tl.minimum({a.name}, {b.name}{nan}) + 0.0", "either"),
        (f"tl.maximum({a.name}, {b.name}{nan}) + 0.0", "either"),
        (f"tl.clamp({a.name}, -1.5, 2.5{nan}) + 0.0", "either"),
        (f"tl.abs({a.name} - {b.name})", "add"),
        (f"-{a.name} + {b.name}", "add"),
        (f"{a.name} * 2.0 - {b.name}", None),
        (f"tl.where({a.name} != {a.name}, {b.name}, {a.name})", "either"),
    ]
    if element in (F32, F64):
        choices += [(f"tl.floor({a.name}) + {b.name}", None), (f"tl.ceil({a.name}) * {b.name}", None), (f"tl.fma({a.name}, {b.name}, {a.name})", None)]
    if element is F32:
        choices += [(f"tl.div_rn({a.name}, {b.name})", None), (f"tl.sqrt_rn(tl.abs({a.name})) - {b.name}", None)]
    text, rule = random.choice(choices)
    maker.define(f"({text}).to({element.triton})", element, shape, **tameness(rule, a, b, element))


def tameness(rule: str | None, a, b, element: Element) -> dict:
    """The bound and the step of a result, where both operands have some and the result is exact."""
    if rule is None or not (a.is_tame and b.is_tame):
        return {}
    bound, step = {
        "add": (a.bound + b.bound, min(a.step, b.step)),
        "multiply": (a.bound * b.bound, a.step * b.step),
        "either": (max(a.bound, b.bound, 2.5), min(a.step, b.step)),
    }[rule]
    return exact(bound, step, element)


def exact(bound: float, step: float, element: Element) -> dict:
    """The two as arguments, if every such number is one of the type's."""
    fits = bound / step <= 2**element.mantissa and bound < 6e4 and step > 1e-4
    return {"bound": bound, "step": step} if fits else {}


def comparison(maker):
    """A flag for each element; of floats NaN compares as nothing."""
    chosen = pair(maker, lambda v: v.element is not BOOL)
    if chosen is not None:
        a, b, shape = chosen
        maker.define(f"{a.name} {maker.random.choice(_COMPARISONS)} {b.name}", BOOL, shape)


def flags(maker):
    """Flags of flags."""
    a = maker.pick(lambda v: v.element is BOOL and v.shape != ())
    b = a and maker.pick(lambda v: v.element is BOOL and v.shape == a.shape)
    if b:
        text = maker.random.choice((f"{a.name} & {b.name}", f"{a.name} | {b.name}", f"{a.name} ^ {b.name}", f"~{a.name}", f"{a.name} & ~{b.name}"))
        maker.define(text, BOOL, a.shape)


def choice(maker):
    """`where` on a computed or loaded flag."""
    condition = maker.pick(lambda v: v.element is BOOL and v.shape != ())
    if condition is None:
        return
    a = maker.pick(lambda v: v.shape == condition.shape and v.element is not BOOL)
    if a is None:
        return
    b = maker.pick(lambda v: v.element is a.element and v.shape in (a.shape, ()))
    text = b.name if maker.random.random() < 0.7 else maker.literal(a.element)
    tame = tameness("either", a, b, a.element) if text == b.name else {}
    maker.define(f"tl.where({condition.name}, {a.name}, {text}).to({a.element.triton})", a.element, a.shape, **tame)


def mixed(maker):
    """Operands of two element types, promoted as Triton promotes them."""
    a = maker.pick(lambda v: v.element.is_integer)
    b = a and maker.pick(lambda v: v.element.is_integer and v.element is not a.element and v.shape == a.shape)
    if b:
        target = maker.random.choice(INTEGERS)
        maker.define(f"({a.name} {maker.random.choice('+-*&|^')} {b.name}).to({target.triton})", target, a.shape)


def conversion(maker):
    """A value as another element type."""
    value = maker.pick(lambda v: True)
    if value is not None:
        maker.converted(value, maker.random.choice([element for element in ALL if element is not value.element]))


def converted(maker, value, target: Element):
    """The value as this type, where that is defined: a float becomes an integer only inside the integer's range, and never from NaN."""
    source, name = value.element, value.name
    text = f"{name}.to({target.triton})"
    if source.is_float and target.is_float:
        tame = exact(value.bound, value.step, target) if value.is_tame else {}
        return maker.define(text, target, value.shape, **tame)
    if source.is_float and target.is_integer:
        return maker.define(f"{_inside(name, source, target)}.to({target.triton})", target, value.shape)
    if target in (F16, BF16) and source.bits > 8:
        text = f"({name} & 127).to({target.triton})"
    if target.is_float and source.bits <= 8:
        return maker.define(text, target, value.shape, **exact(256.0, 1.0, target))
    return maker.define(text, target, value.shape)


def _inside(name: str, source: Element, target: Element) -> str:
    """Clamped to the integers that both types have, NaN as 1."""
    bits = target.bits - (target.kind == "signed")
    high = (1 << bits) - (1 << max(0, bits - source.mantissa))
    low = -(1 << bits) if target.kind == "signed" else 0
    if source is F16:
        high, low = min(high, 65504), max(low, -65504)
    wide = name if source in (F32, F64) else f"{name}.to(tl.float32)"
    return f"tl.minimum(tl.maximum(tl.where({wide} != {wide}, 1.0, {wide}), {low}.0), {high}.0)"


def bits(maker):
    """The bits of an integer as a float of the same size."""
    value = maker.pick(lambda v: v.element.is_integer and v.element.bits >= 16)
    if value is not None:
        target = maker.random.choice([element for element in FLOATS if element.bits == value.element.bits])
        maker.define(f"{value.name}.to({target.triton}, bitcast=True)", target, value.shape)


#: Functions that are rounded in more than one way: name, what is done to the argument, units in the last place that results may differ by.
_FUNCTIONS = (("exp", "{}", 4), ("exp2", "{}", 4), ("log", "tl.abs({}) + 0.5", 4), ("log2", "tl.abs({}) + 0.75", 4), ("sin", "{}", 8), ("cos", "{}", 8), ("sqrt", "tl.abs({})", 1), ("rsqrt", "tl.abs({}) + 0.5", 2), ("erf", "{}", 8), ("sigmoid", "{}", 8))


def function(maker):
    """A function whose result goes to memory at once, since nothing exact can be made of it."""
    value = maker.pick(lambda v: v.element is F32 and v.is_tame and v.bound <= 64 and v.shape != ())
    if value is not None:
        name, argument, tolerance = maker.random.choice(_FUNCTIONS)
        result = maker.define(f"tl.{name}({argument.format(value.name)})", F32, value.shape, visible=False)
        maker.observe(result, tolerance)
