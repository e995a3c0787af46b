//! Formulas over tiles, written like arithmetic: `1.0 / (1.0 + (-x).exp())` builds the instructions of a kernel.

use openmps_tile::{Binary, Builder, Cast, Compare, Scalar, Unary, Value};
use std::cell::RefCell;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The kernel under construction, and whether its integers have a sign.
pub struct Scope {
    builder: RefCell<Builder>,
    signed: bool,
}

/// A tile in a formula.
#[derive(Clone, Copy)]
pub struct Expr<'s> {
    scope: &'s Scope,
    value: Value,
}

impl Scope {
    /// A scope that adds to `builder`.
    pub fn new(builder: Builder, signed: bool) -> Scope {
        Scope { builder: RefCell::new(builder), signed }
    }

    /// The builder, once the formulas are done.
    pub fn into_builder(self) -> Builder {
        self.builder.into_inner()
    }

    /// A value as an expression.
    pub fn expr(&self, value: Value) -> Expr<'_> {
        Expr { scope: self, value }
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $method:ident = $variant:ident,)*) => {
        $($(#[$doc])* pub fn $method(self) -> Expr<'s> { self.unary(Unary::$variant) })*
    };
}
macro_rules! binary {
    ($($(#[$doc:meta])* $method:ident = $signed:ident / $unsigned:ident,)*) => {
        $($(#[$doc])* pub fn $method(self, other: impl Operand<'s>) -> Expr<'s> {
            self.binary(if self.scope.signed { Binary::$signed } else { Binary::$unsigned }, other)
        })*
    };
}
macro_rules! compare {
    ($($(#[$doc:meta])* $method:ident = $signed:ident / $unsigned:ident,)*) => {
        $($(#[$doc])* pub fn $method(self, other: impl Operand<'s>) -> Expr<'s> {
            self.compare(if self.scope.signed { Compare::$signed } else { Compare::$unsigned }, other)
        })*
    };
}

/// An operand of a formula: another expression, or a number of the same type.
pub trait Operand<'s> {
    /// The operand as a tile like `like`.
    fn like(self, like: Expr<'s>) -> Expr<'s>;
}

impl<'s> Operand<'s> for Expr<'s> {
    fn like(self, _: Expr<'s>) -> Expr<'s> {
        self
    }
}

impl<'s> Operand<'s> for f64 {
    fn like(self, like: Expr<'s>) -> Expr<'s> {
        like.make(|builder| builder.constant_like(self, like.value))
    }
}

#[allow(clippy::should_implement_trait, reason = "the operators of Rust mean something else for integers here")]
impl<'s> Expr<'s> {
    /// The value in the kernel.
    pub fn value(self) -> Value {
        self.value
    }

    /// The number type.
    pub fn scalar(self) -> Scalar {
        self.scope.builder.borrow().scalar_of(self.value)
    }

    fn make(self, build: impl FnOnce(&mut Builder) -> Value) -> Expr<'s> {
        let value = build(&mut self.scope.builder.borrow_mut());
        Expr { scope: self.scope, value }
    }

    fn unary(self, operation: Unary) -> Expr<'s> {
        self.make(|builder| builder.unary(operation, self.value))
    }

    fn binary(self, operation: Binary, other: impl Operand<'s>) -> Expr<'s> {
        let other = other.like(self);
        self.make(|builder| builder.binary(operation, self.value, other.value))
    }

    fn compare(self, comparison: Compare, other: impl Operand<'s>) -> Expr<'s> {
        let other = other.like(self);
        let comparison = if self.scalar().is_float() { signed(comparison) } else { comparison };
        self.make(|builder| builder.compare(comparison, self.value, other.value))
    }

    unary! {
        /// `|x|`
        abs = Absolute,
        /// Complement.
        not = Not,
        /// `e^x`
        exp = Exp,
        /// `e^x - 1`
        expm1 = Expm1,
        /// Natural logarithm.
        log = Log,
        /// Logarithm to base 2.
        log2 = Log2,
        /// `log(1 + x)`
        log1p = Log1p,
        /// Square root.
        sqrt = Sqrt,
        /// `1 / sqrt(x)`
        rsqrt = Rsqrt,
        /// Sine.
        sin = Sin,
        /// Cosine.
        cos = Cos,
        /// Tangent.
        tan = Tan,
        /// Inverse sine.
        asin = Asin,
        /// Inverse cosine.
        acos = Acos,
        /// Inverse tangent.
        atan = Atan,
        /// Hyperbolic sine.
        sinh = Sinh,
        /// Hyperbolic cosine.
        cosh = Cosh,
        /// Hyperbolic tangent.
        tanh = Tanh,
        /// The error function.
        erf = Erf,
        /// Largest integer not above.
        floor = Floor,
        /// Smallest integer not below.
        ceil = Ceil,
        /// Nearest integer, halves to even.
        round = Round,
        /// Towards zero.
        trunc = Truncate,
    }

    binary! {
        /// The smaller; NaN when either is.
        min = Minimum / MinimumUnsigned,
        /// The larger; NaN when either is.
        max = Maximum / MaximumUnsigned,
        /// The remainder with the dividend's sign.
        rem = Remainder / RemainderUnsigned,
        /// The quotient; towards zero for integers.
        div = Divide / DivideUnsigned,
        /// `x^y`
        pow = Power / Power,
        /// The angle of the point (y, x).
        atan2 = Atan2 / Atan2,
        /// Bitwise and.
        and = And / And,
        /// Bitwise or.
        or = Or / Or,
        /// Bitwise exclusive or.
        xor = Xor / Xor,
        /// Left shift; 0 when the distance is negative or not below the width.
        shift_left = ShiftLeft / ShiftLeft,
        /// Right shift that keeps the sign of signed integers; only the sign is left when the distance is negative or not below the width.
        shift_right = ShiftRight / ShiftRightUnsigned,
    }

    compare! {
        /// `x == y`
        eq = Equal / Equal,
        /// `x != y`
        ne = NotEqual / NotEqual,
        /// `x < y`
        lt = Less / LessUnsigned,
        /// `x <= y`
        le = LessEqual / LessEqualUnsigned,
        /// `x > y`
        gt = Greater / GreaterUnsigned,
        /// `x >= y`
        ge = GreaterEqual / GreaterEqualUnsigned,
    }

    /// This condition's choice between two values.
    pub fn select(self, yes: Expr<'s>, no: impl Operand<'s>) -> Expr<'s> {
        let no = no.like(yes);
        self.make(|builder| builder.select(self.value, yes.value, no.value))
    }

    /// This number in every element, in the type of `self`.
    pub fn number(self, number: f64) -> Expr<'s> {
        number.like(self)
    }

    /// The same number in another type; floats become integers towards zero.
    pub fn cast(self, from_signed: bool, to: Scalar, to_signed: bool) -> Expr<'s> {
        let from = self.scalar();
        let unsigned = from == Scalar::I1 || !from_signed;
        let cast = match (from.is_float(), to.is_float()) {
            (true, true) => Cast::Float,
            (true, false) if to_signed => Cast::FloatToSigned,
            (true, false) => Cast::FloatToUnsigned,
            (false, true) if unsigned => Cast::UnsignedToFloat,
            (false, true) => Cast::SignedToFloat,
            (false, false) if unsigned && to.size() >= from.size() => Cast::Unsigned,
            (false, false) => Cast::Signed,
        };
        self.make(|builder| builder.cast(cast, self.value, to))
    }

    /// Whether this number is not zero.
    pub fn truth(self) -> Expr<'s> {
        if self.scalar() == Scalar::I1 { self } else { self.ne(0.0) }
    }
}

fn signed(comparison: Compare) -> Compare {
    match comparison {
        Compare::LessUnsigned => Compare::Less,
        Compare::LessEqualUnsigned => Compare::LessEqual,
        Compare::GreaterUnsigned => Compare::Greater,
        Compare::GreaterEqualUnsigned => Compare::GreaterEqual,
        other => other,
    }
}

macro_rules! operators {
    ($($trait:ident $method:ident $variant:ident,)*) => {
        $(impl<'s, T: Operand<'s>> $trait<T> for Expr<'s> {
            type Output = Expr<'s>;
            fn $method(self, other: T) -> Expr<'s> { self.binary(Binary::$variant, other) }
        }
        impl<'s> $trait<Expr<'s>> for f64 {
            type Output = Expr<'s>;
            fn $method(self, other: Expr<'s>) -> Expr<'s> { self.like(other).binary(Binary::$variant, other) }
        })*
    };
}
operators! { Add add Add, Sub sub Subtract, Mul mul Multiply, Div div Divide, }

impl<'s> Neg for Expr<'s> {
    type Output = Expr<'s>;
    fn neg(self) -> Expr<'s> {
        self.unary(Unary::Negate)
    }
}

impl Scope {
    /// A scalar in every element of a tile.
    pub fn splat<'s>(&'s self, scalar: Expr<'s>, dims: &[usize]) -> Expr<'s> {
        scalar.make(|builder| builder.splat(scalar.value, dims))
    }
}
