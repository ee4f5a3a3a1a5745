//! The engine's membership: newer views, and the lease under which it serves others.

use super::{Engine, World};
use crate::ids::Side;
use crate::units::Nanos;
use crate::view::View;

impl<W: World> Engine<W> {
    /// Goes on to `view` if it is newer than the one that the engine has; false if not. What waits
    /// for sides that are down in it ends as in [`Engine::fence`], sides of a new incarnation are
    /// [welcomed](Engine::welcome), and tasks that wait for a
    /// [change](crate::fabric::Local::view_changes) are woken.
    pub fn install_view(&self, view: &View) -> bool {
        let inner = &*self.0;
        let before = inner.views.current().clone();
        if !inner.views.install(view.clone()) {
            return false;
        }
        for node in view.node_ids() {
            for side in [Side::Host, Side::Nic] {
                let state = view.side(node, side);
                if state == before.side(node, side) {
                    continue;
                }
                if state.up {
                    self.welcome(node, side, state.incarnation);
                } else {
                    self.fence(node, side, state.incarnation);
                }
                self.note_member(node, side, state.up);
            }
        }
        inner.view_changes.notify();
        true
    }

    /// Lets the engine serve until its clock shows `until`. An engine that has never been given a
    /// lease serves for ever: its cluster has no service of views.
    ///
    /// One that lacks the other half that it needs gets none: its next life begins with that one's.
    pub fn grant_lease(&self, until: Nanos) {
        if !self.0.halved.get() {
            self.0.lease.set(Some(until));
        }
    }

    /// The other side of this node has crashed, and this one is worth nothing without it.
    pub(super) fn halve(&self) {
        self.0.halved.set(true);
        self.revoke_lease();
    }

    /// Revokes the lease: the engine serves no request until it is granted another.
    pub fn revoke_lease(&self) {
        self.0.lease.set(Some(Nanos::ZERO));
    }

    /// May the engine serve others now?
    pub(super) fn is_leased(&self) -> bool {
        self.0.lease.get().is_none_or(|until| self.0.world.now() < until)
    }
}
