//! Moving a tile's elements between threads, by way of threadgroup memory.

use super::element::Body;
use super::{Emitter, Result, element_size};
use crate::assign::Form;
use crate::dialect::Dialect;
use crate::layout::Layout;
use openmps_tile::{Element, Type, Value};

impl Emitter<'_> {
    /// Reserves threadgroup memory and waits until nobody reads it any more.
    pub(super) fn take_scratch(&mut self, bytes: usize) {
        self.scratch = self.scratch.max(bytes);
        self.scratch_taken += 1;
        if std::mem::replace(&mut self.scratch_in_use, true) {
            self.line(self.keywords().barrier);
        }
    }

    /// Waits until what was written to threadgroup memory can be read.
    pub(super) fn scratch_written(&mut self) {
        self.line(self.keywords().barrier);
    }

    /// The type of a tile's element in threadgroup memory.
    pub(super) fn scratch_type(&self, ty: &Type) -> String {
        match ty.element {
            Element::Pointer(_) => "ulong".to_owned(),
            Element::Scalar(scalar) => self.target.dialect.register(scalar).to_owned(),
        }
    }

    /// What stands before a pointer into threadgroup memory.
    pub(super) fn scratch_space(&self) -> &'static str {
        if self.target.dialect == Dialect::Metal { self.keywords().threadgroup } else { "" }
    }

    /// A pointer to threadgroup memory from a byte on.
    pub(super) fn scratch_pointer(&self, element: &str, byte: usize) -> String {
        let space = self.scratch_space();
        let base = format!("({space}{element}*)scratch");
        if byte == 0 { base } else { format!("({space}{element}*)(({space}uchar*)scratch + {byte})") }
    }

    /// Gives a kept tile registers in another layout.
    pub(super) fn convert(&mut self, value: Value, to: &Layout) -> Result<()> {
        let ty = self.type_of(value);
        let Form::Materialized { layout: from, .. } = self.forms.of(value) else {
            return Err(self.unsupported(format!("the layout of %{}", value.0)));
        };
        let from = from.dense().0;
        let element = self.scratch_type(ty);
        let pointer = matches!(ty.element, Element::Pointer(_));
        let elements = 1 << from.bits().len();
        self.take_scratch(elements * element_size(ty));
        let name = self.declare(value, to)?;
        let memory = self.scratch_pointer(&element, 0);
        let space = self.scratch_space();
        self.open("{");
        self.line(format!("{space}{element}* moved = {memory};"));
        self.open_registers(from.registers());
        let text = self.element(&mut Body::default(), value, &from)?;
        let text = if pointer { format!("(ulong){text}") } else { text };
        let write = format!("moved[{}] = {text};", from.index(0, from.bits().len()));
        self.line(match self.first_of_replicas(&from) {
            Some(first) => format!("if ({first}) {write}"),
            None => write,
        });
        self.close();
        self.scratch_written();
        let read = format!("moved[{}]", to.index(0, to.bits().len()));
        let read = if pointer { format!("({}){read}", self.register_type(ty)) } else { read };
        self.each_register(to.registers(), format!("{} = {read};", self.place(&name, to)));
        self.close();
        Ok(())
    }
}
