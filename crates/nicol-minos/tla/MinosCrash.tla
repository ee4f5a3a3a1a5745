------------------------------ MODULE MinosCrash ------------------------------
(* One write of MINOS while a node crashes at any instant: the change of view behind it, epochs  *)
(* in INVs and ACKs, and replays by those who have the update (AMB-20, decision 0032). It is      *)
(* what `Minos.tla` leaves out, for all five persistency models, on the host and offloaded; the   *)
(* model in `tests/model` follows the same rules. Messages stay in `net` and arrive in any order. *)
(*                                                                                                *)
(* With one write nothing becomes obsolete and nobody contends for the WRLock: lines 5 to 7, 9,   *)
(* 13 to 17 and 27 to 36 of the figures are in `Minos.tla`. The write's timestamp is 1, what was  *)
(* loaded is 0. `cargo xtask tlc` checks it. `Broken` names what is done wrong on purpose.        *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    N,        \* Nodes, which are 0 .. N-1; 0 coordinates the write.
    Model,    \* "synch", "strict", "renf", "event" or "scope".
    Offload,  \* TRUE: MINOS-O.
    Broken    \* Planted bugs.

Nodes == 0 .. N - 1
Views == 1 .. 2

VARIABLES
    up,        \* The nodes that have not crashed.
    changed,   \* Is there a second view, without the dead?
    known,     \* The view that each node knows.
    rec,       \* The record at each node.
    lead,      \* Where each node stands as the write's coordinator, or as one who replays it.
    fol,       \* Where each node stands with the INV of another one, in each view.
    val,       \* How far each node is with a VAL or VAL_C, and with a VAL_P.
    net,       \* Messages: <<"INV", from, view>>, <<ACK, from, to, view>>, <<VAL, from>>.
    queue,     \* MINOS-O: the nodes in whose vFIFO the update is.
    bg,        \* The nodes that persist it outside of the critical path.
    returned,  \* Has the client its response?
    read       \* Has a client read the update?

vars == <<up, changed, known, rec, lead, fol, val, net, queue, bg, returned, read>>

Max(a, b) == IF a > b THEN a ELSE b
Members(v) == IF v = 1 THEN Nodes ELSE up
IsDead(n) == changed /\ n \notin up
Others(n, v) == Members(v) \ {n}

-------------------------------------------------------------------------------
(* What differs between the models: the marked steps, as in `Minos.tla` and `model.rs`. *)

Coordinator ==
    CASE Model = "synch" /\ ~Offload ->
            <<"Persist", "SpinC", "RaiseV", "RaiseD", "Release", "VAL", "Return">>
      [] Model = "synch" /\ Offload ->
            <<"Persist", "SpinC", "Return", "RaiseV", "RaiseD", "Release", "VAL">>
      [] Model = "strict" /\ ~Offload ->
            <<"Persist", "SpinC", "RaiseV", "Release", "VAL_C", "SpinP", "RaiseD", "VAL_P",
              "Return">>
      [] Model = "strict" /\ Offload ->
            <<"Persist", "SpinC", "RaiseV", "Release", "VAL_C", "SpinP", "Return", "RaiseD",
              "VAL_P">>
      [] Model = "renf" ->
            <<"Background", "SpinC", "Return", "RaiseV", "SpinP", "SpinOwn", "RaiseD", "Release",
              "VAL">>
      [] Model \in {"event", "scope"} /\ ~Offload ->
            <<"Background", "SpinC", "RaiseV", "Release", "VAL_C", "Return">>
      [] Model \in {"event", "scope"} /\ Offload ->
            <<"Background", "SpinC", "Return", "RaiseV", "Release", "VAL_C">>

Follower ==
    CASE Model = "synch" -> <<"Persist", "ACK">>
      [] Model \in {"strict", "renf"} -> <<"ACK_C", "Persist", "ACK_P">>
      [] Model \in {"event", "scope"} -> <<"ACK_C", "Persist">>

OnVal ==
    IF Model \in {"synch", "renf"} THEN <<"RaiseV", "RaiseD", "Release">>
    ELSE <<"RaiseV", "Release">>

OnValP == IF Model = "strict" THEN <<"RaiseD">> ELSE <<>>

-------------------------------------------------------------------------------

Idle == [pc |-> "idle", at |-> 1, view |-> 1]

Init ==
    /\ up = Nodes
    /\ changed = FALSE
    /\ known = [n \in Nodes |-> 1]
    /\ rec = [n \in Nodes |-> [rd |-> FALSE, vol |-> 0, glbV |-> 0, glbD |-> 0, dur |-> 0, val |-> 0]]
    /\ lead = [n \in Nodes |-> IF n = 0 THEN [Idle EXCEPT !.pc = "line8"] ELSE Idle]
    /\ fol = [n \in Nodes |-> [m \in Nodes |-> [v \in Views |-> Idle]]]
    /\ val = [n \in Nodes |-> [c |-> 1, p |-> 1]]
    /\ net = {}
    /\ queue = {}
    /\ bg = {}
    /\ returned = FALSE
    /\ read = FALSE

(* Who waits for ACKs counts those of its own view, from every other member of it. *)
Acked(n, what) ==
    LET v == lead[n].view
        has(m) == \E kind \in {"ACK", what} : <<kind, m, n, v>> \in net
    IN  \A m \in Others(n, v) : has(m)

MayRelease(n) == ~rec[n].rd \/ rec[n].val = 1

(* One marked step at node n; `to` and `v`: whose INV it follows, in which view. *)
Do(step, n, to, v) ==
    CASE step = "Persist" ->
            /\ IF "acknowledges before it has persisted" \in Broken
               THEN bg' = bg \union {n} /\ UNCHANGED rec
               ELSE rec' = [rec EXCEPT ![n].dur = 1] /\ UNCHANGED bg
            /\ UNCHANGED <<net, returned>>
      [] step = "Background" ->
            /\ bg' = IF rec[n].dur = 1 THEN bg ELSE bg \union {n}
            /\ UNCHANGED <<rec, net, returned>>
      [] step = "SpinOwn" -> n \notin bg /\ UNCHANGED <<rec, net, bg, returned>>
      [] step = "SpinC" -> Acked(n, "ACK_C") /\ UNCHANGED <<rec, net, bg, returned>>
      [] step = "SpinP" -> Acked(n, "ACK_P") /\ UNCHANGED <<rec, net, bg, returned>>
      [] step = "RaiseV" ->
            rec' = [rec EXCEPT ![n].glbV = 1] /\ UNCHANGED <<net, bg, returned>>
      [] step = "RaiseD" ->
            rec' = [rec EXCEPT ![n].glbD = 1] /\ UNCHANGED <<net, bg, returned>>
      [] step = "Release" ->
            /\ MayRelease(n)
            /\ rec' = [rec EXCEPT ![n].rd = FALSE]
            /\ UNCHANGED <<net, bg, returned>>
      [] step \in {"VAL", "VAL_C", "VAL_P"} ->
            net' = net \union {<<step, n>>} /\ UNCHANGED <<rec, bg, returned>>
      [] step \in {"ACK", "ACK_C", "ACK_P"} ->
            (* Who has joined since may have copied the record before this update: an ACK is given *)
            (* in the view of its INV only.                                                        *)
            /\ net' = IF known[n] = v THEN net \union {<<step, n, to, v>>} ELSE net
            /\ UNCHANGED <<rec, bg, returned>>
      (* A replay returns to nobody; what it has brought everywhere has taken effect. *)
      [] step = "Return" -> returned' = TRUE /\ UNCHANGED <<rec, net, bg>>

-------------------------------------------------------------------------------
(* The coordinator, and who replays. *)

Lead(n, line) == n \in up /\ lead[n].pc = line
LeadTo(n, line) == lead' = [lead EXCEPT ![n].pc = line, ![n].at = 1]

Snatch8(n) ==
    /\ Lead(n, "line8")
    /\ rec' = [rec EXCEPT ![n].rd = rec[n].glbV < 1 \/ @]
    /\ LeadTo(n, "line11")
    /\ UNCHANGED <<up, changed, known, fol, val, net, queue, bg, returned, read>>

(* INVs to every other member of the view that it knows: first, or again in a later one. *)
Invite(n) ==
    /\ n \in up
    /\ \/ lead[n].pc \in {"line11", "replay"}
       \/ /\ lead[n].pc \in {"line12", "complete"} /\ lead[n].view < known[n]
          /\ "sends no INV again" \notin Broken
    /\ net' = net \union {<<"INV", n, known[n]>>}
    /\ LET then == CASE lead[n].pc = "line11" -> "line12"
                     [] lead[n].pc = "replay" -> "complete"
                     [] OTHER -> lead[n].pc
       IN  lead' = [lead EXCEPT ![n].pc = then, ![n].view = known[n]]
    /\ UNCHANGED <<up, changed, known, rec, fol, val, queue, bg, returned, read>>

Update(n) ==
    [rec EXCEPT ![n].vol = 1, ![n].val = IF Offload THEN @ ELSE 1]
Enqueued(n) == IF Offload THEN queue \union {n} ELSE queue

Update12(n) ==
    /\ Lead(n, "line12")
    /\ rec' = Update(n)
    /\ queue' = Enqueued(n)
    /\ LeadTo(n, "complete")
    /\ UNCHANGED <<up, changed, known, fol, val, net, bg, returned, read>>

Complete(n) ==
    /\ Lead(n, "complete")
    /\ Do(Coordinator[lead[n].at], n, n, lead[n].view)
    /\ IF lead[n].at = Len(Coordinator) THEN LeadTo(n, "done")
       ELSE lead' = [lead EXCEPT ![n].at = @ + 1]
    /\ UNCHANGED <<up, changed, known, fol, val, queue, read>>

(* A follower that has the update of a dead coordinator, and whose record it has left locked. *)
Replay(n) ==
    /\ Lead(n, "idle")
    /\ known[n] = 2 /\ IsDead(0)
    /\ rec[n].val = 1 /\ rec[n].rd
    /\ "nobody replays" \notin Broken
    /\ IF "releases instead of replaying" \in Broken
       THEN rec' = [rec EXCEPT ![n].rd = FALSE] /\ LeadTo(n, "done")
       ELSE UNCHANGED rec /\ LeadTo(n, "replay")
    /\ UNCHANGED <<up, changed, known, fol, val, net, queue, bg, returned, read>>

-------------------------------------------------------------------------------
(* A follower. An INV of an older view than the node knows is not taken up. *)

Fol(n, m, v, line) == n \in up /\ fol[n][m][v].pc = line
FolTo(n, m, v, line) == fol' = [fol EXCEPT ![n][m][v].pc = line, ![n][m][v].at = 1]

Receive(n, m, v) ==
    /\ Fol(n, m, v, "idle")
    /\ <<"INV", m, v>> \in net
    /\ n \in Others(m, v)
    /\ known[n] <= v
    /\ known' = [known EXCEPT ![n] = v]
    /\ FolTo(n, m, v, IF rec[n].vol = 1 THEN "again" ELSE "line31")
    /\ UNCHANGED <<up, changed, rec, lead, val, net, queue, bg, returned, read>>

(* Line 31; also of an update that is here already: what it is, is not locked yet. *)
Snatch31(n, m, v) ==
    /\ Fol(n, m, v, "line31") \/ Fol(n, m, v, "again")
    /\ rec' = [rec EXCEPT ![n].rd = rec[n].glbV < 1 \/ @]
    /\ FolTo(n, m, v, IF fol[n][m][v].pc = "again" THEN "line39" ELSE "line34")
    /\ UNCHANGED <<up, changed, known, lead, val, net, queue, bg, returned, read>>

Update34(n, m, v) ==
    /\ Fol(n, m, v, "line34")
    /\ rec' = Update(n)
    /\ queue' = IF rec[n].val = 1 THEN queue ELSE Enqueued(n)
    /\ FolTo(n, m, v, "line39")
    /\ UNCHANGED <<up, changed, known, lead, val, net, bg, returned, read>>

Acknowledge(n, m, v) ==
    /\ Fol(n, m, v, "line39")
    /\ Do(Follower[fol[n][m][v].at], n, m, v)
    /\ IF fol[n][m][v].at = Len(Follower) THEN FolTo(n, m, v, "done")
       ELSE fol' = [fol EXCEPT ![n][m][v].at = @ + 1]
    /\ UNCHANGED <<up, changed, known, lead, val, queue, read>>

-------------------------------------------------------------------------------
(* VALs, devices, clients, nodes. *)

Validated(n) ==
    /\ n \in up /\ val[n].c <= Len(OnVal)
    /\ \E m \in Nodes \ {n} : <<"VAL", m>> \in net \/ <<"VAL_C", m>> \in net
    /\ Do(OnVal[val[n].c], n, n, 1)
    /\ val' = [val EXCEPT ![n].c = @ + 1]
    /\ UNCHANGED <<up, changed, known, lead, fol, queue, read>>

ValidatedP(n) ==
    /\ n \in up /\ val[n].p <= Len(OnValP)
    /\ \E m \in Nodes \ {n} : <<"VAL_P", m>> \in net
    /\ Do(OnValP[val[n].p], n, n, 1)
    /\ val' = [val EXCEPT ![n].p = @ + 1]
    /\ UNCHANGED <<up, changed, known, lead, fol, queue, read>>

PersistInBackground(n) ==
    /\ n \in up \intersect bg
    /\ bg' = bg \ {n}
    /\ rec' = [rec EXCEPT ![n].dur = 1]
    /\ UNCHANGED <<up, changed, known, lead, fol, val, net, queue, returned, read>>

Drain(n) ==
    /\ n \in up \intersect queue
    /\ queue' = queue \ {n}
    /\ rec' = [rec EXCEPT ![n].val = 1]
    /\ UNCHANGED <<up, changed, known, lead, fol, val, net, bg, returned, read>>

Read(n) ==
    /\ n \in up /\ ~rec[n].rd /\ rec[n].val = 1 /\ ~read
    /\ read' = TRUE
    /\ UNCHANGED <<up, changed, known, rec, lead, fol, val, net, queue, bg, returned>>

(* Everything that is under way at a node ends with it. One node crashes. *)
Crash(n) ==
    /\ up = Nodes
    /\ up' = up \ {n}
    /\ queue' = queue \ {n}
    /\ bg' = bg \ {n}
    /\ UNCHANGED <<changed, known, rec, lead, fol, val, net, returned, read>>

ChangeView ==
    /\ up # Nodes /\ ~changed
    /\ changed' = TRUE
    /\ UNCHANGED <<up, known, rec, lead, fol, val, net, queue, bg, returned, read>>

Learn(n) ==
    /\ changed /\ n \in up /\ known[n] = 1
    /\ known' = [known EXCEPT ![n] = 2]
    /\ UNCHANGED <<up, changed, rec, lead, fol, val, net, queue, bg, returned, read>>

-------------------------------------------------------------------------------

HasEnded(n) ==
    /\ lead[n].pc \in {"idle", "done"}
    /\ \A m \in Nodes, v \in Views : fol[n][m][v].pc \in {"idle", "done"}
    /\ ~rec[n].rd
    /\ n \notin queue \union bg

AllEnded == \A n \in up : HasEnded(n)

Step(n) ==
    \/ Snatch8(n) \/ Invite(n) \/ Update12(n) \/ Complete(n) \/ Replay(n)
    \/ \E m \in Nodes, v \in Views :
          Receive(n, m, v) \/ Snatch31(n, m, v) \/ Update34(n, m, v) \/ Acknowledge(n, m, v)
    \/ Validated(n) \/ ValidatedP(n) \/ PersistInBackground(n) \/ Drain(n) \/ Learn(n)

Next ==
    \/ \E n \in Nodes : Step(n) \/ Read(n) \/ Crash(n)
    \/ ChangeView
    \/ AllEnded /\ UNCHANGED vars

(* Each process and device goes on if it can. Nobody must crash or read. *)
Fairness ==
    /\ WF_vars(ChangeView)
    /\ \A n \in Nodes :
          /\ WF_vars(Snatch8(n)) /\ WF_vars(Invite(n)) /\ WF_vars(Update12(n))
          /\ WF_vars(Complete(n)) /\ WF_vars(Replay(n))
          /\ WF_vars(Validated(n)) /\ WF_vars(ValidatedP(n))
          /\ WF_vars(PersistInBackground(n)) /\ WF_vars(Drain(n)) /\ WF_vars(Learn(n))
          /\ \A m \in Nodes, v \in Views :
                /\ WF_vars(Receive(n, m, v)) /\ WF_vars(Snatch31(n, m, v))
                /\ WF_vars(Update34(n, m, v)) /\ WF_vars(Acknowledge(n, m, v))

Spec == Init /\ [][Next]_vars /\ Fairness

-------------------------------------------------------------------------------
(* Every write of a living coordinator ends, and no record stays locked, whatever crashes. *)
EveryWriteEnds == <>[](AllEnded /\ (0 \in up => returned))

Readable(n) == n \in up /\ ~rec[n].rd

(* What has returned or was read, nobody may miss; what can be read, no other lacks. *)
ReadsAreLinearizable ==
    \A n \in Nodes : Readable(n) =>
        /\ rec[n].val = rec[n].vol
        /\ returned \/ read => rec[n].val = 1
        /\ \A m \in up : rec[m].vol >= rec[n].val

ReturnedIsEverywhere == returned => \A n \in up : rec[n].vol = 1

(* 2c*, 3b* *)
GlobalVolatileIsEverywhere == \A n, m \in up : rec[n].glbV <= rec[m].vol
GlobalDurableIsDurable == \A n, m \in up : rec[n].glbD <= rec[m].dur

PersistencyHolds ==
    /\ Model \in {"synch", "strict"} /\ returned => \A n \in up : rec[n].dur = 1
    /\ Model \in {"synch", "renf"} =>
          \A n \in Nodes : Readable(n) => \A m \in up : rec[m].dur >= rec[n].val

(* In the end replicas agree, in memory and in their logs. *)
ReplicasAgree ==
    AllEnded /\ (\A n \in up : known[n] = IF up = Nodes THEN 1 ELSE 2) =>
        \A n, m \in up : rec[n].val = rec[m].val /\ rec[n].vol = rec[m].vol

TypesAreLegal ==
    /\ \A n \in Nodes : known[n] = 2 => changed
    /\ \A message \in net :
          message[1] \in {"INV", "ACK", "ACK_C", "ACK_P", "VAL", "VAL_C", "VAL_P"}
    /\ ~Offload => queue = {}
===============================================================================
