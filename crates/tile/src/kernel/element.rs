//! What operations do with elements: functions of one and of two, comparisons, conversions, and how reductions and atomics combine.

macro_rules! named {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// Every member.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The name in printed text.
            pub const fn text(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }
        }
    };
}

named! {
    /// Operations on one operand. Those on floats take any float type, `Negate` and `Absolute` integers as well, `Not` integers and i1.
    ///
    /// f16 and bf16 compute in f32 and round after each operation. The interpreter rounds functions correctly; devices may be off by a
    /// few units in the last place.
    Unary {
        /// `-x`, wrapping for integers.
        Negate = "negate",
        /// `|x|`, wrapping for integers: the smallest integer stays.
        Absolute = "abs",
        /// Bitwise complement, or logical negation of i1.
        Not = "not",
        /// `e^x`
        Exp = "math.exp",
        /// `2^x`
        Exp2 = "math.exp2",
        /// `e^x - 1`
        Expm1 = "math.expm1",
        /// Natural logarithm.
        Log = "math.log",
        /// Logarithm to base 2.
        Log2 = "math.log2",
        /// `log(1 + x)`
        Log1p = "math.log1p",
        /// Square root.
        Sqrt = "math.sqrt",
        /// `1 / sqrt(x)`
        Rsqrt = "math.rsqrt",
        /// Sine, in radians.
        Sin = "math.sin",
        /// Cosine, in radians.
        Cos = "math.cos",
        /// Tangent, in radians.
        Tan = "math.tan",
        /// Inverse sine.
        Asin = "math.asin",
        /// Inverse cosine.
        Acos = "math.acos",
        /// Inverse tangent.
        Atan = "math.atan",
        /// Hyperbolic sine.
        Sinh = "math.sinh",
        /// Hyperbolic cosine.
        Cosh = "math.cosh",
        /// Hyperbolic tangent.
        Tanh = "math.tanh",
        /// The error function.
        Erf = "math.erf",
        /// Largest integer not above.
        Floor = "math.floor",
        /// Smallest integer not below.
        Ceil = "math.ceil",
        /// Nearest integer, halves to even.
        Round = "math.roundeven",
        /// Towards zero.
        Truncate = "math.trunc",
    }
}

named! {
    /// Operations on two operands of one type, f16 and bf16 as in [`Unary`]. Without a sign in the name: floats, or integers of either sign.
    Binary {
        /// `x + y`, wrapping for integers.
        Add = "add",
        /// `x - y`, wrapping for integers.
        Subtract = "sub",
        /// `x * y`, wrapping for integers.
        Multiply = "mul",
        /// Float quotient, or signed integer quotient towards zero (0 where the divisor is 0), wrapping.
        Divide = "div",
        /// Unsigned integer quotient (0 where the divisor is 0).
        DivideUnsigned = "divui",
        /// Float or signed integer remainder with the sign of the dividend (0 where an integer divisor is 0).
        Remainder = "rem",
        /// Unsigned integer remainder (0 where the divisor is 0).
        RemainderUnsigned = "remui",
        /// The smaller; NaN when either is (`arith.minimumf`), signed for integers. Of two zeros it may be either; the interpreter's is the negative.
        Minimum = "minimum",
        /// The larger; NaN when either is (`arith.maximumf`), signed for integers. Of two zeros it may be either; the interpreter's is the positive.
        Maximum = "maximum",
        /// The smaller of two floats; the other where one is NaN (`arith.minnumf`). Of two zeros it may be either.
        MinimumNumber = "minnumf",
        /// The larger of two floats; the other where one is NaN (`arith.maxnumf`). Of two zeros it may be either.
        MaximumNumber = "maxnumf",
        /// The smaller of unsigned integers.
        MinimumUnsigned = "minui",
        /// The larger of unsigned integers.
        MaximumUnsigned = "maxui",
        /// `x^y` of floats.
        Power = "math.powf",
        /// The angle of the point (y, x).
        Atan2 = "math.atan2",
        /// The upper half of the product of unsigned integers.
        MultiplyHighUnsigned = "mulhiui",
        /// Bitwise and, of integers or i1.
        And = "andi",
        /// Bitwise or, of integers or i1.
        Or = "ori",
        /// Bitwise exclusive or, of integers or i1.
        Xor = "xori",
        /// Left shift; 0 when the distance, unsigned, is not below the width.
        ShiftLeft = "shli",
        /// Right shift that keeps the sign; only the sign is left when the distance, unsigned, is not below the width.
        ShiftRight = "shrsi",
        /// Right shift that fills with zeros; 0 when the distance, unsigned, is not below the width.
        ShiftRightUnsigned = "shrui",
    }
}

named! {
    /// What an atomic operation does with the value in memory and the one given.
    Atomic {
        /// Integer sum, wrapping.
        Add = "add",
        /// Float sum.
        AddFloat = "fadd",
        /// Bitwise and.
        And = "and",
        /// Bitwise or.
        Or = "or",
        /// Bitwise exclusive or.
        Xor = "xor",
        /// The larger signed integer.
        Maximum = "max",
        /// The smaller signed integer.
        Minimum = "min",
        /// The larger unsigned integer.
        MaximumUnsigned = "umax",
        /// The smaller unsigned integer.
        MinimumUnsigned = "umin",
        /// The given value.
        Exchange = "exch",
        /// What is there, which is only read: memory may be such that nobody can write to it. The given value is of no use.
        Read = "read",
    }
}

impl Atomic {
    /// Whether memory is changed.
    pub const fn writes(self) -> bool {
        !matches!(self, Atomic::Read)
    }

    /// The operation on what is in memory and what is given; none where one of the two is the result.
    pub const fn operation(self) -> Option<Binary> {
        Some(match self {
            Atomic::Add | Atomic::AddFloat => Binary::Add,
            Atomic::And => Binary::And,
            Atomic::Or => Binary::Or,
            Atomic::Xor => Binary::Xor,
            Atomic::Maximum => Binary::Maximum,
            Atomic::Minimum => Binary::Minimum,
            Atomic::MaximumUnsigned => Binary::MaximumUnsigned,
            Atomic::MinimumUnsigned => Binary::MinimumUnsigned,
            Atomic::Exchange | Atomic::Read => return None,
        })
    }
}

named! {
    /// Comparisons. Ordered for floats (false with NaN) but for `NotEqual`; signed for integers but where said. i1 has `Equal` and `NotEqual`.
    Compare {
        /// `x == y`
        Equal = "eq",
        /// `x != y`, true with NaN.
        NotEqual = "ne",
        /// `x < y`
        Less = "lt",
        /// `x <= y`
        LessEqual = "le",
        /// `x > y`
        Greater = "gt",
        /// `x >= y`
        GreaterEqual = "ge",
        /// `x < y` of unsigned integers.
        LessUnsigned = "ult",
        /// `x <= y` of unsigned integers.
        LessEqualUnsigned = "ule",
        /// `x > y` of unsigned integers.
        GreaterUnsigned = "ugt",
        /// `x >= y` of unsigned integers.
        GreaterEqualUnsigned = "uge",
    }
}

named! {
    /// Conversions between different number types. i1 is converted from and to where said.
    Cast {
        /// Signed integer to a wider or narrower integer, or to i1: the lowest bits (`extsi`, `trunci`).
        Signed = "signed",
        /// Unsigned integer to a wider one, or boolean to any integer (`extui`).
        Unsigned = "extui",
        /// Signed integer to float (`sitofp`).
        SignedToFloat = "sitofp",
        /// Unsigned integer or boolean to float (`uitofp`).
        UnsignedToFloat = "uitofp",
        /// Float to signed integer towards zero; saturating, NaN to 0 (`fptosi`). Integers of 8 and 16 bits are the low bits of an int32, 0
        /// where that does not reach.
        FloatToSigned = "fptosi",
        /// Float to unsigned integer towards zero; saturating, NaN to 0 (`fptoui`). Integers of 8 and 16 bits as [`Cast::FloatToSigned`].
        FloatToUnsigned = "fptoui",
        /// Float to float, to nearest even (`extf`, `truncf`); f64 becomes a half type by way of f32.
        Float = "fpcast",
        /// The same bits as another type of the same size (`tt.bitcast`).
        Bits = "bitcast",
    }
}

named! {
    /// How a reduction combines two elements; as the [`Binary`] of the like name.
    Combine {
        /// Sum.
        Sum = "sum",
        /// Product.
        Product = "product",
        /// The smallest; NaN when any is.
        Minimum = "min",
        /// The largest; NaN when any is.
        Maximum = "max",
        /// The smallest of floats that are not NaN; NaN when all are.
        MinimumNumber = "minnum",
        /// The largest of floats that are not NaN; NaN when all are.
        MaximumNumber = "maxnum",
        /// Bitwise and of integers; all of booleans.
        And = "and",
        /// Bitwise or of integers; any of booleans.
        Or = "or",
        /// Bitwise exclusive or of integers; whether an odd number of booleans.
        Xor = "xor",
    }
}

impl Combine {
    /// The combination by an operation on two elements, if it is one.
    pub fn by(operation: Binary) -> Option<Combine> {
        Self::ALL.iter().copied().find(|combine| combine.operation() == operation)
    }

    /// The operation on two elements.
    pub const fn operation(self) -> Binary {
        match self {
            Combine::Sum => Binary::Add,
            Combine::Product => Binary::Multiply,
            Combine::Minimum => Binary::Minimum,
            Combine::Maximum => Binary::Maximum,
            Combine::MinimumNumber => Binary::MinimumNumber,
            Combine::MaximumNumber => Binary::MaximumNumber,
            Combine::And => Binary::And,
            Combine::Or => Binary::Or,
            Combine::Xor => Binary::Xor,
        }
    }
}
