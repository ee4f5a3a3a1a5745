//! A client engine's way to the servers: what it may reach of each, and its reports of buffers.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use nicol_core::fabric::{Fabric, FabricError, Timeout};
use nicol_core::ids::{EngineId, Incarnation, NodeId, Side};
use nicol_core::units::Nanos;
use nicol_kit::Open;

use super::messages::{Handles, Hello, Report, Suspicion, Unused};

/// Time that a HELLO waits for its answer, and that the next one waits after a failed one.
const HELLO_TIMEOUT: Nanos = Nanos::from_millis(2);
const HELLO_WAIT: Nanos = Nanos::from_micros(100);
/// Waits for a server's handles: how often, and for how long each, at first and later. Together a
/// second, which a server's thread may need on a busy machine.
const HANDLES_WAITS: [(u32, Nanos); 2] =
    [(2_000, Nanos::from_micros(5)), (1_000, Nanos::from_millis(1))];
/// Reports wait so long for others to the same server, and so many of them travel together.
const REPORT_AFTER: Nanos = Nanos::from_micros(10);
const REPORTS_MAX: usize = 64;
/// Time after which a report is sent again, and how often it is sent. Buffers of which a silent
/// server was not told are found by its next scan.
const REPORT_TIMEOUT: Nanos = Nanos::from_millis(2);
const REPORT_ATTEMPTS: u32 = 16;

/// A server as this engine knows it.
#[derive(Default)]
struct Server {
    handles: Option<Rc<Handles>>,
    /// Whether a HELLO is under way.
    asked: bool,
    /// Buffers to report, and the life of the server that they are of.
    unused: Vec<Unused>,
    life: Option<Incarnation>,
    suspects: Suspicion,
    /// Whether a task is about to send what is in `unused`.
    reports: bool,
}

/// Why a server is not reached.
pub(crate) enum Unreached {
    /// A view says that it is gone.
    Lost,
    /// It does not answer.
    Silent,
}

struct Inner<F> {
    fabric: F,
    servers: RefCell<Vec<Server>>,
    /// By node: the newest life that any server has told of.
    lives: RefCell<Vec<Incarnation>>,
    /// Work of this engine that is not done, counted for its node.
    open: Arc<AtomicU64>,
    /// Whether a server cannot tell a report that it gets twice, so that a buffer is reported once
    /// at most.
    reports_once: bool,
}

/// The servers as one client engine knows them. Clones are the same.
pub(crate) struct Servers<F>(Rc<Inner<F>>);

impl<F> Clone for Servers<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: Fabric> Servers<F> {
    /// None is known yet. `open` counts what the node has to do.
    pub(crate) fn new(fabric: &F, open: &Arc<AtomicU64>) -> Self {
        Self::with_reports(fabric, open, false)
    }

    /// The same of servers whose buffers may be used twice under one stamp: each is told of an
    /// unused buffer at most once, and looks for it itself if that is not answered.
    pub(crate) fn reporting_once(fabric: &F, open: &Arc<AtomicU64>) -> Self {
        Self::with_reports(fabric, open, true)
    }

    fn with_reports(fabric: &F, open: &Arc<AtomicU64>, reports_once: bool) -> Self {
        let nodes = fabric.view().nodes();
        Self(Rc::new(Inner {
            fabric: fabric.clone(),
            servers: RefCell::new((0..nodes).map(|_| Server::default()).collect()),
            lives: RefCell::new(vec![Incarnation::FIRST; nodes]),
            open: open.clone(),
            reports_once,
        }))
    }

    /// The handles of `node`, if they are known; else the node is asked for them, for later calls.
    pub(crate) fn handles(&self, node: NodeId) -> Option<Rc<Handles>> {
        let server = &mut self.0.servers.borrow_mut()[node.index()];
        if server.handles.is_none() && !server.asked {
            server.asked = true;
            self.0.fabric.spawn(self.clone().ask(node));
        }
        server.handles.clone()
    }

    /// The handles of `node`, as soon as they are known.
    ///
    /// Errors: `is_lost` says that the node is gone, or it has told nothing for a second.
    pub(crate) async fn reach(
        &self,
        node: NodeId,
        is_lost: impl Fn() -> bool,
    ) -> Result<Rc<Handles>, Unreached> {
        for (times, wait) in HANDLES_WAITS {
            for _ in 0..times {
                if is_lost() {
                    return Err(Unreached::Lost);
                }
                if let Some(handles) = self.handles(node) {
                    return Ok(handles);
                }
                self.0.fabric.sleep_until(self.0.fabric.now() + wait).await;
            }
        }
        Err(Unreached::Silent)
    }

    /// These handles of `node` do not hold any more: they are asked for again.
    pub(crate) fn forget(&self, node: NodeId, handles: &Rc<Handles>) {
        let known = &mut self.0.servers.borrow_mut()[node.index()].handles;
        known.take_if(|known| Rc::ptr_eq(known, handles));
    }

    /// Whether the life of `node` of these handles is over, as far as any server has told. Then
    /// what it has acknowledged is void: a later life may serve without it.
    pub(crate) fn is_over(&self, node: NodeId, life: Incarnation) -> bool {
        life < self.0.lives.borrow()[node.index()]
    }

    /// Sends `node` one HELLO, and keeps the handles that it answers with.
    async fn ask(self, node: NodeId) {
        let fabric = &self.0.fabric;
        let hosts = fabric.view().engines(node, Side::Host).max(1);
        let engine = EngineId::host(node, fabric.view().peer_of(fabric.here(), node, hosts));
        let answer = fabric.call(engine, &Hello, Timeout::After(HELLO_TIMEOUT)).await;
        let nodes = fabric.view().nodes();
        let handles = answer.ok().and_then(|body| Handles::parse(body.as_ref(), nodes).ok());
        if handles.is_none() {
            fabric.sleep_until(fabric.now() + HELLO_WAIT).await;
        }
        self.learn(node, handles);
    }

    fn learn(&self, node: NodeId, handles: Option<Handles>) {
        let server = &mut self.0.servers.borrow_mut()[node.index()];
        server.asked = false;
        let Some(handles) = handles else { return };
        for (known, told) in self.0.lives.borrow_mut().iter_mut().zip(&handles.lives) {
            *known = (*known).max(*told);
        }
        server.handles = Some(Rc::new(handles));
    }

    /// A buffer of `node`, as it was reached by `handles`, is not used any more: reports it soon,
    /// with others. What an earlier life of the node had is gone.
    pub(crate) fn report(&self, node: NodeId, handles: &Handles, unused: Unused) {
        let life = Some(handles.lives[node.index()]);
        self.add(node, |server| {
            if server.life < life {
                server.unused.clear();
                server.life = life;
            }
            if server.life == life {
                server.unused.push(unused);
            }
        });
    }

    pub(crate) fn suspect(&self, node: NodeId, suspects: Suspicion) {
        self.add(node, |server| server.suspects = server.suspects.max(suspects));
    }

    fn add(&self, node: NodeId, what: impl FnOnce(&mut Server)) {
        let server = &mut self.0.servers.borrow_mut()[node.index()];
        what(server);
        if !server.reports {
            server.reports = true;
            let open = Open::begin(&self.0.open);
            self.0.fabric.spawn(self.clone().send_reports(node, open));
        }
    }

    /// Sends reports to `node` until there are none left.
    async fn send_reports(self, node: NodeId, open: Open) {
        let fabric = &self.0.fabric;
        loop {
            fabric.sleep_until(fabric.now() + REPORT_AFTER).await;
            let Some((life, suspects, unused)) = self.take_reports(node) else { break };
            let mut report = Report { life, suspects, unused: &unused };
            for _ in 0..REPORT_ATTEMPTS {
                let timeout = Timeout::After(REPORT_TIMEOUT);
                let sent = fabric.call(EngineId::host(node, 0), &report, timeout).await;
                // A server that is gone has no buffers, and one that has come back has others. To
                // be told twice does no harm, but where stamps do not tell what was told before.
                if !matches!(sent, Err(FabricError::TimedOut { .. })) {
                    break;
                }
                if self.0.reports_once {
                    let suspects = suspects.max(Suspicion::Unseen);
                    report = Report { life, suspects, unused: &[] };
                }
            }
        }
        drop(open);
    }

    fn take_reports(&self, node: NodeId) -> Option<(Incarnation, Suspicion, Vec<Unused>)> {
        let server = &mut self.0.servers.borrow_mut()[node.index()];
        if server.unused.is_empty() && server.suspects == Suspicion::None {
            server.reports = false;
            return None;
        }
        let count = server.unused.len().min(REPORTS_MAX);
        let unused = server.unused.drain(..count).collect();
        let life = server.life.unwrap_or(Incarnation::FIRST);
        Some((life, std::mem::take(&mut server.suspects), unused))
    }
}

/// Whether `error` says that the known keys of a server are no longer valid.
pub(crate) fn voids_handles(error: FabricError) -> bool {
    matches!(error, FabricError::AccessDenied(_) | FabricError::Unreachable)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use nicol_core::engine::Start;
    use nicol_core::fabric::{Delivery, Service};
    use nicol_core::faults::FaultPlan;
    use nicol_core::ids::RKey;
    use nicol_core::view::View;
    use nicol_core::wire::Malformed;
    use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};

    use super::*;
    use crate::messages::parse_report;

    const SERVER: NodeId = NodeId(1);

    /// The reports to a server: the suspicion, and the number of buffers.
    type Told = Arc<Mutex<Vec<(Suspicion, usize)>>>;

    /// A server that answers nothing.
    struct Silent(Told);

    impl Service for Silent {
        fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
            let (suspects, unused) = parse_report(delivery.body, Incarnation::FIRST)?;
            self.0.lock().unwrap().push((suspects, unused.len()));
            Ok(())
        }
    }

    /// A client that reports one buffer.
    struct Reporting {
        once: bool,
        told: Told,
    }

    impl Start for Reporting {
        fn start<F: Fabric>(&self, fabric: &F) {
            let here = fabric.here();
            if here == EngineId::host(SERVER, 0) {
                assert!(fabric.serve(Rc::new(Silent(self.told.clone()))));
            } else if here == EngineId::host(NodeId(0), 0) {
                let open = Arc::default();
                let servers = match self.once {
                    true => Servers::reporting_once(fabric, &open),
                    false => Servers::new(fabric, &open),
                };
                let unused = Unused { offset: 64, stamp: 1, pointer: 0 };
                servers.report(SERVER, &handles(Incarnation::FIRST), unused);
            }
        }
    }

    /// The handles that `life` of the server has told.
    fn handles(life: Incarnation) -> Handles {
        let (key, lists) = (RKey(1), Vec::new());
        Handles { region: key, pointers: key, lists, lives: vec![Incarnation::FIRST, life] }
    }

    #[test]
    fn what_is_not_answered_is_told_again_or_the_server_is_asked_to_look() {
        let first = (Suspicion::None, 1);
        for (once, again) in [(false, first), (true, (Suspicion::Unseen, 0))] {
            let told = Told::default();
            let view = View::new(2, 1, 1, 1).unwrap();
            let profile = Arc::new(Profile::load("connectx5-40g").unwrap());
            // Only over routes that may lose messages does anybody send one again.
            let faults = FaultPlan { loss: 1, ..FaultPlan::none() };
            let config = SimConfig { faults, ..SimConfig::new(view, profile, 1) };
            let cluster = SimCluster::new(config);
            cluster.start(Arc::new(Reporting { once, told: told.clone() }));
            let done = |_| told.lock().unwrap().len() == 3;
            assert_eq!(cluster.run_until(&mut { done }, Nanos::from_millis(20)), RunEnd::Done);
            assert_eq!(*told.lock().unwrap(), [first, again, again]);
        }
    }
}
