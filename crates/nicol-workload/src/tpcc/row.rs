//! Record layouts: fixed sizes, little-endian, columns in the specification's order. Key columns
//! are part of the key, except for HISTORY, which has no key in the specification.
//!
//! Money is in cents, taxes and discounts in basis points, dates in seconds since 1970 (0: null).
//!
//! | table | bytes here | typical in the specification (1.2.1) |
//! |---|---|---|
//! | WAREHOUSE | 83 | 89, with the next |
//! | W_YTD | 8 | |
//! | DISTRICT | 95 | 95 |
//! | CUSTOMER | 655 | 655 |
//! | HISTORY | 46 | 46 |
//! | NEW-ORDER | 8 | 8 |
//! | ORDER | 18 | 24 |
//! | ORDER-LINE | 46 | 54 |
//! | ITEM | 82 | 82 |
//! | STOCK | 18; 308 where it is whole | 306, with the next |
//! | STOCK's texts | 290 | |

use std::marker::PhantomData;
use std::ops::Range;

use super::step::{Step, Stop};

/// A number as stored in records.
pub(super) trait Number: Copy {
    /// Reads it from the start of `bytes`.
    fn load(bytes: &[u8]) -> Self;
    /// Writes it to the start of `bytes`.
    fn store(self, bytes: &mut [u8]);
    /// The sum, if it is in range.
    fn plus(self, other: Self) -> Option<Self>;
}

macro_rules! number {
    ($($type:ty),*) => {$(
        impl Number for $type {
            fn load(bytes: &[u8]) -> Self {
                let mut copy = [0; size_of::<Self>()];
                copy.copy_from_slice(&bytes[..size_of::<Self>()]);
                Self::from_le_bytes(copy)
            }
            fn store(self, bytes: &mut [u8]) {
                bytes[..size_of::<Self>()].copy_from_slice(&self.to_le_bytes());
            }
            fn plus(self, other: Self) -> Option<Self> {
                self.checked_add(other)
            }
        }
    )*};
}

number!(u8, u16, u32, i64);

/// A numeric column at a fixed offset.
pub(super) struct Column<T>(usize, PhantomData<T>);

impl<T: Number> Column<T> {
    /// The column that starts at byte `start`.
    pub(super) const fn at(start: usize) -> Self {
        Self(start, PhantomData)
    }

    /// The first byte after it.
    pub(super) const fn end(&self) -> usize {
        self.0 + size_of::<T>()
    }

    /// Its value in `row`.
    pub(super) fn get(&self, row: &[u8]) -> T {
        T::load(&row[self.0..])
    }

    /// Sets its value in `row`.
    pub(super) fn set(&self, row: &mut [u8], value: T) {
        value.store(&mut row[self.0..]);
    }

    /// Adds `amount` to its value in `row`; refuses, and changes nothing, if that is out of range.
    pub(super) fn add(&self, row: &mut [u8], amount: T) -> Step<()> {
        self.set(row, self.get(row).plus(amount).ok_or(Stop::Refuse)?);
        Ok(())
    }
}

const fn text(start: usize, len: usize) -> Range<usize> {
    start..start + len
}

/// Name and address, as WAREHOUSE and DISTRICT have them.
pub(super) mod address {
    use super::{Range, text};
    pub(crate) const NAME: Range<usize> = text(0, 10);
    pub(crate) const STREETS_AND_CITY: Range<usize> = text(NAME.end, 60);
    pub(crate) const STATE: Range<usize> = text(STREETS_AND_CITY.end, 2);
    pub(crate) const ZIP: Range<usize> = text(STATE.end, 9);
}

pub(super) mod warehouse {
    use super::{Column, address};
    pub(crate) const TAX: Column<u16> = Column::at(address::ZIP.end);
    pub(crate) const LEN: usize = TAX.end();
}

/// The column of WAREHOUSE that Payment changes, apart from those that New-Order reads: as Silo and
/// STO split the table. (AMB-52)
pub(super) mod warehouse_ytd {
    use super::Column;
    pub(crate) const YTD: Column<i64> = Column::at(0);
    pub(crate) const LEN: usize = YTD.end();
}

pub(super) mod district {
    use super::{Column, address};
    pub(crate) const TAX: Column<u16> = Column::at(address::ZIP.end);
    pub(crate) const YTD: Column<i64> = Column::at(TAX.end());
    pub(crate) const NEXT_ORDER: Column<u32> = Column::at(YTD.end());
    pub(crate) const LEN: usize = NEXT_ORDER.end();
}

pub(super) mod customer {
    use super::{Column, Range, text};
    pub(crate) const FIRST: Range<usize> = text(0, 16);
    pub(crate) const MIDDLE: Range<usize> = text(FIRST.end, 2);
    pub(crate) const LAST: Range<usize> = text(MIDDLE.end, 16);
    pub(crate) const STREETS_AND_CITY: Range<usize> = text(LAST.end, 60);
    pub(crate) const STATE: Range<usize> = text(STREETS_AND_CITY.end, 2);
    pub(crate) const ZIP: Range<usize> = text(STATE.end, 9);
    pub(crate) const PHONE: Range<usize> = text(ZIP.end, 16);
    pub(crate) const SINCE: Column<u32> = Column::at(PHONE.end);
    pub(crate) const CREDIT: Range<usize> = text(SINCE.end(), 2);
    pub(crate) const CREDIT_LIMIT: Column<u32> = Column::at(CREDIT.end);
    pub(crate) const DISCOUNT: Column<u16> = Column::at(CREDIT_LIMIT.end());
    pub(crate) const BALANCE: Column<i64> = Column::at(DISCOUNT.end());
    pub(crate) const YTD_PAYMENT: Column<i64> = Column::at(BALANCE.end());
    pub(crate) const PAYMENTS: Column<u32> = Column::at(YTD_PAYMENT.end());
    /// Four digits in the specification: stays at its largest value.
    pub(crate) const DELIVERIES: Column<u16> = Column::at(PAYMENTS.end());
    pub(crate) const DATA: Range<usize> = text(DELIVERIES.end(), 500);
    pub(crate) const LEN: usize = DATA.end;
    /// The credit that gets its payments noted.
    pub(crate) const BAD_CREDIT: &[u8] = b"BC";
    pub(crate) const GOOD_CREDIT: &[u8] = b"GC";
}

pub(super) mod history {
    use super::{Column, Range, text};
    pub(crate) const CUSTOMER: Column<u32> = Column::at(0);
    pub(crate) const CUSTOMER_DISTRICT: Column<u8> = Column::at(CUSTOMER.end());
    pub(crate) const CUSTOMER_WAREHOUSE: Column<u16> = Column::at(CUSTOMER_DISTRICT.end());
    pub(crate) const DISTRICT: Column<u8> = Column::at(CUSTOMER_WAREHOUSE.end());
    pub(crate) const WAREHOUSE: Column<u16> = Column::at(DISTRICT.end());
    pub(crate) const DATE: Column<u32> = Column::at(WAREHOUSE.end());
    pub(crate) const AMOUNT: Column<i64> = Column::at(DATE.end());
    pub(crate) const DATA: Range<usize> = text(AMOUNT.end(), 24);
    pub(crate) const LEN: usize = DATA.end;
}

pub(super) mod new_order {
    use super::Column;
    pub(crate) const ORDER: Column<u32> = Column::at(0);
    pub(crate) const DISTRICT: Column<u16> = Column::at(ORDER.end());
    pub(crate) const WAREHOUSE: Column<u16> = Column::at(DISTRICT.end());
    pub(crate) const LEN: usize = WAREHOUSE.end();
}

pub(super) mod order {
    use super::Column;
    pub(crate) const ORDER: Column<u32> = Column::at(0);
    pub(crate) const CUSTOMER: Column<u32> = Column::at(ORDER.end());
    pub(crate) const ENTRY_DATE: Column<u32> = Column::at(CUSTOMER.end());
    /// 0: null, not delivered yet.
    pub(crate) const CARRIER: Column<u16> = Column::at(ENTRY_DATE.end());
    pub(crate) const LINES: Column<u16> = Column::at(CARRIER.end());
    pub(crate) const ALL_LOCAL: Column<u16> = Column::at(LINES.end());
    pub(crate) const LEN: usize = ALL_LOCAL.end();
}

pub(super) mod order_line {
    use super::{Column, Range, text};
    pub(crate) const ITEM: Column<u32> = Column::at(0);
    pub(crate) const SUPPLY_WAREHOUSE: Column<u16> = Column::at(ITEM.end());
    /// 0: null, not delivered yet.
    pub(crate) const DELIVERY_DATE: Column<u32> = Column::at(SUPPLY_WAREHOUSE.end());
    pub(crate) const QUANTITY: Column<u32> = Column::at(DELIVERY_DATE.end());
    pub(crate) const AMOUNT: Column<i64> = Column::at(QUANTITY.end());
    pub(crate) const DIST_INFO: Range<usize> = text(AMOUNT.end(), 24);
    pub(crate) const LEN: usize = DIST_INFO.end;
}

pub(super) mod item {
    use super::{Column, Range, text};
    pub(crate) const IMAGE: Column<u32> = Column::at(0);
    pub(crate) const NAME: Range<usize> = text(IMAGE.end(), 24);
    pub(crate) const PRICE: Column<u32> = Column::at(NAME.end);
    pub(crate) const DATA: Range<usize> = text(PRICE.end(), 50);
    pub(crate) const LEN: usize = DATA.end;
}

/// The columns of STOCK that New-Order changes.
pub(super) mod stock {
    use super::Column;
    pub(crate) const QUANTITY: Column<u16> = Column::at(0);
    pub(crate) const YTD: Column<u32> = Column::at(QUANTITY.end());
    pub(crate) const ORDERS: Column<u32> = Column::at(YTD.end());
    pub(crate) const REMOTE_ORDERS: Column<u32> = Column::at(ORDERS.end());
    /// How often the row has changed: not in the specification, but in the baselines' code.
    pub(crate) const CHANGES: Column<u32> = Column::at(REMOTE_ORDERS.end());
    pub(crate) const LEN: usize = CHANGES.end();
    /// Bytes of a row with the texts behind these.
    pub(crate) const WHOLE: usize = LEN + super::stock_texts::LEN;
}

/// The columns of STOCK that are never written.
pub(super) mod stock_texts {
    use super::{Range, text};
    /// Ten texts of 24 bytes, one per district.
    pub(crate) const DISTS: Range<usize> = text(0, 240);
    pub(crate) const DATA: Range<usize> = text(DISTS.end, 50);
    pub(crate) const LEN: usize = DATA.end;
    /// S_DIST_xx of `district`, which counts from 1.
    pub(crate) fn dist(district: u8) -> Range<usize> {
        text(DISTS.start + 24 * usize::from(district - 1), 24)
    }
}

/// The text that the data of an ITEM or a STOCK may contain.
pub(super) const ORIGINAL: &[u8; 8] = b"ORIGINAL";

/// The two indices that hold one order number.
pub(super) mod order_number {
    use super::Column;
    pub(crate) const ORDER: Column<u32> = Column::at(0);
    pub(crate) const LEN: usize = ORDER.end();
}

/// The rows of the code that the RDMA baselines share, where they differ. AMB-43
pub(super) mod baselines {
    pub(crate) mod new_order {
        use crate::tpcc::row::Column;
        pub(crate) const ORDER: Column<u32> = Column::at(0);
        pub(crate) const DISTRICT: Column<u32> = Column::at(ORDER.end());
        pub(crate) const WAREHOUSE: Column<u32> = Column::at(DISTRICT.end());
        pub(crate) const LEN: usize = WAREHOUSE.end();
    }

    pub(crate) mod order {
        use crate::tpcc::row::Column;
        pub(crate) const CUSTOMER: Column<u32> = Column::at(0);
        /// 0: null, not delivered yet.
        pub(crate) const CARRIER: Column<u32> = Column::at(CUSTOMER.end());
        pub(crate) const LINES: Column<u8> = Column::at(CARRIER.end());
        pub(crate) const ALL_LOCAL: Column<u8> = Column::at(LINES.end());
        pub(crate) const ENTRY_DATE: Column<u32> = Column::at(ALL_LOCAL.end() + 2);
        pub(crate) const LEN: usize = ENTRY_DATE.end();
    }

    pub(crate) mod order_line {
        use crate::tpcc::row::Column;
        pub(crate) const ITEM: Column<u32> = Column::at(0);
        /// 0: null, not delivered yet.
        pub(crate) const DELIVERY_DATE: Column<u32> = Column::at(ITEM.end());
        pub(crate) const AMOUNT: Column<u32> = Column::at(DELIVERY_DATE.end());
        pub(crate) const SUPPLY_WAREHOUSE: Column<u32> = Column::at(AMOUNT.end());
        pub(crate) const QUANTITY: Column<u8> = Column::at(SUPPLY_WAREHOUSE.end());
        pub(crate) const LEN: usize = QUANTITY.end() + 3;
    }

    pub(crate) mod order_of_customer {
        use crate::tpcc::row::Column;
        pub(crate) const ORDER: Column<u32> = Column::at(0);
        pub(crate) const CUSTOMER: Column<u32> = Column::at(ORDER.end());
        pub(crate) const DISTRICT: Column<u32> = Column::at(CUSTOMER.end());
        pub(crate) const WAREHOUSE: Column<u32> = Column::at(DISTRICT.end());
        pub(crate) const LEN: usize = WAREHOUSE.end();
    }
}

const _: () = {
    assert!(warehouse::LEN == 83);
    assert!(warehouse_ytd::LEN == 8);
    assert!(district::LEN == 95);
    assert!(customer::LEN == 655);
    assert!(history::LEN == 46);
    assert!(new_order::LEN == 8);
    assert!(order::LEN == 18);
    assert!(order_line::LEN == 46);
    assert!(item::LEN == 82);
    assert!(stock::LEN == 18);
    assert!(stock_texts::LEN == 290);
    assert!(baselines::new_order::LEN == 12);
    assert!(baselines::order::LEN == 16);
    assert!(baselines::order_line::LEN == 20);
    assert!(baselines::order_of_customer::LEN == 16);
};

/// The row in `value`; `None` if it has another size.
pub(super) fn parse<const LEN: usize>(value: &[u8]) -> Option<&[u8; LEN]> {
    value.try_into().ok()
}
