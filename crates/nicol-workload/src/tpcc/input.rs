//! The arguments of the five transactions, in their wire form.

use nicol_core::wire::{Malformed, Reader};

use super::key::{CUSTOMERS_MAX, DISTRICTS, District, LINES_MAX, NAMES};
use super::row::Number;

/// Bytes of the longest arguments: a New-Order of 15 lines.
const ARGS_MAX: usize = 12 + 7 * LINES_MAX as usize;
/// Pieces of one line that may be ordered.
const QUANTITY_MAX: u8 = 10;

/// Arguments being written, on the stack.
pub(super) struct Args {
    bytes: [u8; ARGS_MAX],
    len: usize,
}

impl Args {
    const fn new() -> Self {
        Self { bytes: [0; ARGS_MAX], len: 0 }
    }

    fn put<T: Number>(mut self, value: T) -> Self {
        let end = self.len + size_of::<T>();
        value.store(&mut self.bytes[self.len..end]);
        self.len = end;
        self
    }

    fn put_district(self, district: District) -> Self {
        self.put(district.warehouse).put(district.number)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

fn parse_district(from: &mut Reader<'_>) -> Result<District, Malformed> {
    let district = District { warehouse: from.u16()?, number: from.u8()? };
    if !(1..=DISTRICTS).contains(&district.number) {
        return Err(Malformed { what: "a district" });
    }
    Ok(district)
}

fn parse_customer(from: &mut Reader<'_>) -> Result<u16, Malformed> {
    match from.u16()? {
        customer @ 1..=CUSTOMERS_MAX => Ok(customer),
        _ => Err(Malformed { what: "a customer" }),
    }
}

/// A line of an order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) item: u32,
    pub(super) supply: u16,
    pub(super) quantity: u8,
}

/// New-Order. (2.4.1)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NewOrder {
    pub(super) home: District,
    pub(super) customer: u16,
    /// The partition of the ITEM copy to read.
    pub(super) items_at: u16,
    pub(super) date: u32,
    count: u8,
    lines: [Line; LINES_MAX as usize],
}

impl NewOrder {
    /// An order with no lines yet.
    pub(super) fn new(home: District, customer: u16, items_at: u16, date: u32) -> Self {
        let lines = [Line::default(); LINES_MAX as usize];
        Self { home, customer, items_at, date, count: 0, lines }
    }

    /// Adds a line; there are at most [`LINES_MAX`].
    pub(super) fn add(&mut self, line: Line) {
        self.lines[usize::from(self.count)] = line;
        self.count += 1;
    }

    pub(super) fn lines(&self) -> &[Line] {
        &self.lines[..usize::from(self.count)]
    }

    pub(super) fn emit(&self) -> Args {
        let mut args = Args::new().put_district(self.home).put(self.customer);
        args = args.put(self.items_at).put(self.date).put(self.count);
        for line in self.lines() {
            args = args.put(line.item).put(line.supply).put(line.quantity);
        }
        args
    }

    pub(super) fn parse(args: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(args);
        let (home, customer) = (parse_district(&mut from)?, parse_customer(&mut from)?);
        let mut order = Self::new(home, customer, from.u16()?, from.u32()?);
        let count = from.u8()?;
        if !(1..=LINES_MAX).contains(&count) {
            return Err(Malformed { what: "a number of lines" });
        }
        for _ in 0..count {
            let line = Line { item: from.u32()?, supply: from.u16()?, quantity: from.u8()? };
            if !(1..=QUANTITY_MAX).contains(&line.quantity) {
                return Err(Malformed { what: "a quantity" });
            }
            order.add(line);
        }
        from.finish()?;
        Ok(order)
    }
}

/// How a customer is named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Customer {
    Id(u16),
    /// By last name: the middle one of those who have it.
    LastName(u16),
}

impl Customer {
    fn emit(self, to: Args) -> Args {
        match self {
            Self::Id(customer) => to.put(0_u8).put(customer),
            Self::LastName(name) => to.put(1_u8).put(name),
        }
    }

    fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        match from.u8()? {
            0 => Ok(Self::Id(parse_customer(from)?)),
            1 => match from.u16()? {
                name @ 0..NAMES => Ok(Self::LastName(name)),
                _ => Err(Malformed { what: "a last name" }),
            },
            _ => Err(Malformed { what: "a way to name a customer" }),
        }
    }
}

/// Payment. (2.5.1)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Payment {
    pub(super) home: District,
    pub(super) theirs: District,
    pub(super) customer: Customer,
    pub(super) amount: u32,
    pub(super) date: u32,
}

impl Payment {
    pub(super) fn emit(&self) -> Args {
        let args = Args::new().put_district(self.home).put_district(self.theirs);
        self.customer.emit(args).put(self.amount).put(self.date)
    }

    pub(super) fn parse(args: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(args);
        let payment = Self {
            home: parse_district(&mut from)?,
            theirs: parse_district(&mut from)?,
            customer: Customer::parse(&mut from)?,
            amount: from.u32()?,
            date: from.u32()?,
        };
        from.finish()?;
        Ok(payment)
    }
}

/// Order-Status. (2.6.1)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OrderStatus {
    pub(super) home: District,
    pub(super) customer: Customer,
}

impl OrderStatus {
    pub(super) fn emit(&self) -> Args {
        self.customer.emit(Args::new().put_district(self.home))
    }

    pub(super) fn parse(args: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(args);
        let home = parse_district(&mut from)?;
        let customer = Customer::parse(&mut from)?;
        from.finish()?;
        Ok(Self { home, customer })
    }
}

/// Delivery, or a piece of one. (2.7.1)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) first: District,
    pub(super) last: u8,
    pub(super) carrier: u8,
    pub(super) date: u32,
}

impl Delivery {
    pub(super) fn emit(&self) -> Args {
        Args::new().put_district(self.first).put(self.last).put(self.carrier).put(self.date)
    }

    pub(super) fn parse(args: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(args);
        let first = parse_district(&mut from)?;
        let delivery = Self { first, last: from.u8()?, carrier: from.u8()?, date: from.u32()? };
        from.finish()?;
        if !(first.number..=DISTRICTS).contains(&delivery.last) {
            return Err(Malformed { what: "the last district of a delivery" });
        }
        if delivery.carrier == 0 || delivery.date == 0 {
            return Err(Malformed { what: "a delivery without carrier or date" });
        }
        Ok(delivery)
    }

    pub(super) fn districts(&self) -> impl Iterator<Item = District> + use<> {
        let warehouse = self.first.warehouse;
        (self.first.number..=self.last).map(move |number| District { warehouse, number })
    }
}

/// Stock-Level, or a piece of one. (2.8.1)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StockLevel {
    pub(super) home: District,
    pub(super) threshold: u16,
    /// D_NEXT_O_ID as a piece before found it; 0: to be read.
    pub(super) next_order: u32,
}

impl StockLevel {
    pub(super) fn emit(&self) -> Args {
        Args::new().put_district(self.home).put(self.threshold).put(self.next_order)
    }

    pub(super) fn parse(args: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(args);
        let home = parse_district(&mut from)?;
        let level = Self { home, threshold: from.u16()?, next_order: from.u32()? };
        from.finish()?;
        Ok(level)
    }
}
