//! The arguments of a client's next transaction.

use nicol_core::ids::NodeId;
use nicol_core::rng::Stream;

use super::config::{Chopping, Suppliers, Terminals, TpccConfig};
use super::input::{Customer, Delivery, Line, NewOrder, OrderStatus, Payment, StockLevel};
use super::key::{DISTRICTS, District};
use super::random::{NonUniform, within};
use crate::chooser::Chooser;

/// The first second of the day on which everything happens: 2021-10-26, SOSP '21's.
pub(super) const TODAY: u32 = 1_635_206_400;
const DAY: u64 = 86_400;

/// Draws for a client at `home`.
pub(super) struct Draw<'a> {
    pub(super) config: &'a TpccConfig,
    pub(super) homes: Option<&'a Chooser>,
    /// Its number among all clients.
    pub(super) client: u32,
    pub(super) home: NodeId,
    pub(super) random: &'a mut Stream,
}

impl Draw<'_> {
    fn home_warehouse(&mut self) -> u16 {
        let warehouses = u64::from(self.config.warehouses_per_node);
        let of_node = match (self.config.terminals, self.homes) {
            (Terminals::Own, _) => u64::from(self.client) / u64::from(DISTRICTS) % warehouses,
            (Terminals::Shared, Some(homes)) => homes.draw(self.random),
            (Terminals::Shared, None) => self.random.below(warehouses),
        } as u16;
        of_node * self.config.nodes + self.home.0
    }

    fn district(&mut self, warehouse: u16) -> District {
        District { warehouse, number: within(self.random, 1, u64::from(DISTRICTS)) as u8 }
    }

    /// Another warehouse than `home`, if there is one.
    fn other_warehouse(&mut self, home: u16) -> u16 {
        let others = self.config.warehouses() - 1;
        if others == 0 {
            return home;
        }
        let step = 1 + self.random.below(u64::from(others)) as u32;
        ((u32::from(home) + step) % u32::from(self.config.warehouses())) as u16
    }

    fn customer_id(&mut self) -> u16 {
        let customers = u64::from(self.config.customers_per_district);
        NonUniform::CUSTOMER.draw(self.random, 1, customers) as u16
    }

    /// 60 % by last name. (2.5.1.2, 2.6.1.2)
    fn customer(&mut self) -> Customer {
        if self.random.below(100) < 60 {
            let names = u64::from(self.config.names());
            Customer::LastName(NonUniform::LAST_NAME_RUN.draw(self.random, 0, names - 1) as u16)
        } else {
            Customer::Id(self.customer_id())
        }
    }

    fn date(&mut self) -> u32 {
        TODAY + self.random.below(DAY) as u32
    }

    /// (2.4.1)
    pub(super) fn new_order(mut self) -> NewOrder {
        let warehouse = self.home_warehouse();
        let home = self.district(warehouse);
        let items_at = warehouse % self.config.nodes;
        let mut order = NewOrder::new(home, self.customer_id(), items_at, self.date());
        let lines = within(self.random, 5, 15);
        // 1 % of the orders have an item at their end that does not exist. (2.4.1.4)
        let rollback = self.random.below(100) == 0;
        for line in 1..=lines {
            let items = u64::from(self.config.items);
            let mut item = NonUniform::ITEM.draw(self.random, 1, items) as u32;
            if rollback && line == lines {
                item = self.config.items + 1;
            }
            let supply = match self.config.suppliers {
                Suppliers::Specification if self.random.below(100) == 0 => {
                    self.other_warehouse(warehouse)
                }
                Suppliers::Specification => warehouse,
                Suppliers::Uniform => self.random.below(u64::from(self.config.warehouses())) as u16,
            };
            let quantity = within(self.random, 1, 10) as u8;
            order.add(Line { item, supply, quantity });
        }
        order
    }

    /// (2.5.1)
    pub(super) fn payment(mut self) -> Payment {
        let warehouse = self.home_warehouse();
        let home = self.district(warehouse);
        // 15 % of the customers are at another warehouse. (2.5.1.2)
        let theirs = if self.random.below(100) < 15 {
            let other = self.other_warehouse(warehouse);
            self.district(other)
        } else {
            home
        };
        let customer = self.customer();
        let amount = within(self.random, 100, 500_000) as u32;
        Payment { home, theirs, customer, amount, date: self.date() }
    }

    /// (2.6.1)
    pub(super) fn order_status(mut self) -> OrderStatus {
        let warehouse = self.home_warehouse();
        OrderStatus { home: self.district(warehouse), customer: self.customer() }
    }

    /// (2.7.1)
    pub(super) fn delivery(mut self) -> Delivery {
        let first = District { warehouse: self.home_warehouse(), number: 1 };
        let last = match self.config.chopping {
            Chopping::Whole => DISTRICTS,
            Chopping::Pieces => 1,
        };
        let carrier = within(self.random, 1, 10) as u8;
        Delivery { first, last, carrier, date: self.date() }
    }

    /// (2.8.1)
    pub(super) fn stock_level(mut self) -> StockLevel {
        let warehouse = self.home_warehouse();
        let home = self.district(warehouse);
        StockLevel { home, threshold: within(self.random, 10, 20) as u16, next_order: 0 }
    }
}
