-------------------------------- MODULE Minos --------------------------------
(* MINOS for one record: figures 2, 3 and 8 of [MINOS24], in all five persistency models, on the *)
(* host (MINOS-B) and offloaded (MINOS-O), as the code beside this folder has them. Every        *)
(* numbered line is one action, so processes interleave between any two lines. A message stays   *)
(* in `net` once it is sent: it arrives whenever its receiver takes its step, in any order.      *)
(*                                                                                               *)
(* `cargo xtask tlc` checks it: no deadlock, no livelock, Table I in the corrected form of       *)
(* AMB-17, and what each model promises. `Broken` names what is done wrong on purpose.           *)
EXTENDS Integers, Sequences, FiniteSets

CONSTANTS
    N,        \* Nodes, which are 0 .. N-1.
    W,        \* Client-writes, which are 1 .. W; any node may coordinate each.
    Model,    \* "synch", "strict", "renf", "event" or "scope".
    Offload,  \* TRUE: MINOS-O.
    Entries,  \* Entries of the vFIFO, in MINOS-O.
    Broken    \* Errata as printed, and planted bugs.

Nodes == 0 .. N - 1
Writes == 1 .. W
None == -1

VARIABLES
    coord,      \* Who coordinates a write.
    ts,         \* TS_WR of a write; None before line 4.
    rec,        \* The record at each node: its metadata (figure 1a), its value and its log.
    proc,       \* Where each node stands with each write.
    val,        \* How far each node is with a write's VAL or VAL_C, and with its VAL_P.
    net,        \* Messages: what, of which write, from or to which follower.
    queue,      \* MINOS-O: the writes in each node's vFIFO.
    bg,         \* Persists under way outside of the critical path: <<write, node>>.
    returned,   \* Writes whose clients have their response.
    persisted   \* Scope: writes whose [PERSIST]sc has returned.

vars == <<coord, ts, rec, proc, val, net, queue, bg, returned, persisted>>

Max(a, b) == IF a > b THEN a ELSE b

(* A timestamp is a version, then a node: an integer that orders both. 0 is what was loaded. *)
Timestamp(version, n) == version * N + n
Version(t) == t \div N

-------------------------------------------------------------------------------
(* What differs between the models: the marked steps of figures 2, 3 and 8 (`model.rs`). *)

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

ObsoleteAtCoordinator ==
    IF Model \in {"event", "scope"} THEN <<"SpinGlobalV">> ELSE <<"SpinGlobalV", "SpinGlobalD">>

ObsoleteAtFollower ==
    CASE Model = "synch" -> <<"SpinGlobalV", "SpinGlobalD", "ACK">>
      [] Model \in {"strict", "renf"} -> <<"SpinGlobalV", "ACK_C", "SpinGlobalD", "ACK_P">>
      [] Model \in {"event", "scope"} -> <<"SpinGlobalV", "ACK_C">>

Follower ==
    CASE Model = "synch" -> <<"Persist", "ACK">>
      [] Model \in {"strict", "renf"} -> <<"ACK_C", "Persist", "ACK_P">>
      [] Model \in {"event", "scope"} -> <<"ACK_C", "Persist">>

OnVal ==
    IF Model \in {"synch", "renf"} THEN <<"RaiseV", "RaiseD", "Release">>
    ELSE <<"RaiseV", "Release">>

OnValP == IF Model = "strict" THEN <<"RaiseD">> ELSE <<>>

Alphabet ==
    CASE Model = "synch" -> {"INV", "REJECT", "ACK", "VAL"}
      [] Model = "strict" -> {"INV", "REJECT", "ACK_C", "ACK_P", "VAL_C", "VAL_P"}
      [] Model = "renf" -> {"INV", "REJECT", "ACK_C", "ACK_P", "VAL"}
      [] Model = "event" -> {"INV", "REJECT", "ACK_C", "VAL_C"}
      [] Model = "scope" -> {"INV", "REJECT", "ACK_C", "VAL_C", "PERSIST", "ACK_P", "VAL_P"}

-------------------------------------------------------------------------------

Loaded ==
    [rd |-> None, wr |-> None, vol |-> 0, glbV |-> 0, glbD |-> 0, dur |-> 0, val |-> 0, who |-> 0,
     issued |-> 0]

Init ==
    /\ coord \in [Writes -> Nodes]
    /\ ts = [w \in Writes |-> None]
    /\ rec = [n \in Nodes |-> Loaded]
    /\ proc = [w \in Writes |-> [n \in Nodes |->
                  [pc |-> IF n = coord[w] THEN "line4" ELSE "line26", at |-> 1, target |-> 0]]]
    /\ val = [w \in Writes |-> [n \in Nodes |-> [c |-> 1, p |-> 1]]]
    /\ net = {}
    /\ queue = [n \in Nodes |-> {}]
    /\ bg = {}
    /\ returned = {}
    /\ persisted = {}

Followers(w) == Nodes \ {coord[w]}
Sends(what, w) == {<<what, w, n>> : n \in Followers(w)}
Obsolete(w, n) == ts[w] < rec[n].vol

(* ACK stands for both kinds. *)
AckedC(w, n) == <<"ACK", w, n>> \in net \/ <<"ACK_C", w, n>> \in net
AckedP(w, n) == <<"ACK", w, n>> \in net \/ <<"ACK_P", w, n>> \in net
Invited(w) == proc[w][coord[w]].pc \in {"line12", "line13", "complete"}
                  \/ \E n \in Followers(w) : AckedC(w, n)

Raised(old, t) == IF "AMB-16" \in Broken THEN t ELSE Max(old, t)

(* Releases the RDLock if the write owns it; in MINOS-O once its update has left the vFIFO. *)
MayRelease(w, n) ==
    \/ rec[n].rd # ts[w]
    \/ rec[n].val >= ts[w]
    \/ "releases before the vFIFO has drained" \in Broken
Released(w, n) ==
    [rec EXCEPT ![n].rd = IF @ = ts[w] THEN None ELSE @]

(* One step of a model's sequence; whoever calls it moves on. *)
Do(step, w, n) ==
    CASE step = "Persist" ->
            /\ IF "acknowledges before it has persisted" \in Broken
               THEN bg' = bg \union {<<w, n>>} /\ UNCHANGED rec
               ELSE rec' = [rec EXCEPT ![n].dur = Max(@, ts[w])] /\ UNCHANGED bg
            /\ UNCHANGED <<net, returned>>
      [] step = "Background" ->
            bg' = bg \union {<<w, n>>} /\ UNCHANGED <<rec, net, returned>>
      [] step = "SpinOwn" ->
            <<w, n>> \notin bg /\ UNCHANGED <<rec, net, bg, returned>>
      [] step = "SpinC" ->
            /\ \/ \A m \in Followers(w) : AckedC(w, m)
               \/ "does not wait for one ACK" \in Broken
                      /\ Cardinality({m \in Followers(w) : AckedC(w, m)}) >= N - 2
            /\ UNCHANGED <<rec, net, bg, returned>>
      [] step = "SpinP" ->
            (\A m \in Followers(w) : AckedP(w, m)) /\ UNCHANGED <<rec, net, bg, returned>>
      [] step = "SpinGlobalV" ->
            /\ rec[n].glbV >= proc[w][n].target \/ "skips spins" \in Broken
            /\ UNCHANGED <<rec, net, bg, returned>>
      [] step = "SpinGlobalD" ->
            /\ rec[n].glbD >= proc[w][n].target \/ "skips spins" \in Broken
            /\ UNCHANGED <<rec, net, bg, returned>>
      [] step = "RaiseV" ->
            /\ rec' = [rec EXCEPT ![n].glbV = Raised(@, ts[w])]
            /\ UNCHANGED <<net, bg, returned>>
      [] step = "RaiseD" ->
            /\ rec' = [rec EXCEPT ![n].glbD = Raised(@, ts[w])]
            /\ UNCHANGED <<net, bg, returned>>
      [] step = "Release" ->
            /\ MayRelease(w, n)
            /\ rec' = Released(w, n)
            /\ UNCHANGED <<net, bg, returned>>
      [] step \in {"VAL", "VAL_C", "VAL_P"} ->
            net' = net \union Sends(step, w) /\ UNCHANGED <<rec, bg, returned>>
      [] step \in {"ACK", "ACK_C", "ACK_P"} ->
            net' = net \union {<<step, w, n>>} /\ UNCHANGED <<rec, bg, returned>>
      [] step = "Return" ->
            returned' = returned \union {w} /\ UNCHANGED <<rec, net, bg>>

-------------------------------------------------------------------------------
(* The lines. `Goto` also forgets what the sequence before needed. *)

At(w, n, line) == proc[w][n].pc = line
Goto(w, n, line) ==
    proc' = [proc EXCEPT ![w][n] = [pc |-> line, at |-> 1, target |-> 0]]
GotoObsolete(w, n, line) ==
    proc' = [proc EXCEPT ![w][n] = [pc |-> line, at |-> 1, target |-> rec[n].vol]]

(* Steps of a sequence, one at a time; behind the last the process goes on at `then`. *)
Sequence(w, n, line, steps, then) ==
    /\ At(w, n, line)
    /\ Do(steps[proc[w][n].at], w, n)
    /\ IF proc[w][n].at = Len(steps) THEN Goto(w, n, then)
       ELSE proc' = [proc EXCEPT ![w][n].at = @ + 1]
    /\ UNCHANGED <<coord, ts, val, queue, persisted>>

(* Lines that change the record alone. *)
Line(w, n, line, new, then) ==
    /\ At(w, n, line)
    /\ rec' = new
    /\ Goto(w, n, then)
    /\ UNCHANGED <<coord, ts, val, net, queue, bg, returned, persisted>>

Snatched(w, n) ==
    [rec EXCEPT ![n].rd = IF @ = None \/ @ < ts[w] THEN ts[w] ELSE @]
Locked(w, n) == [rec EXCEPT ![n].wr = w]
Unlocked(n) == [rec EXCEPT ![n].wr = None]
Updated(w, n) == [rec EXCEPT ![n].vol = ts[w], ![n].val = ts[w], ![n].who = w]

(* Line 12 or 34 of figure 8. AMB-19: the vFIFO is volatile memory, which an ACK vouches for. *)
Enqueue(w, n, line, then) ==
    /\ At(w, n, line)
    /\ Cardinality(queue[n]) < Entries
    /\ queue' = [queue EXCEPT ![n] = @ \union {w}]
    /\ rec' = [rec EXCEPT ![n].vol = IF "AMB-19" \in Broken THEN @ ELSE Max(@, ts[w])]
    /\ Goto(w, n, then)
    /\ UNCHANGED <<coord, ts, val, net, bg, returned, persisted>>

(* A test for obsoleteness. *)
Test(w, n, line, obsolete, current) ==
    /\ At(w, n, line)
    /\ IF Obsolete(w, n) THEN GotoObsolete(w, n, obsolete) ELSE Goto(w, n, current)
    /\ UNCHANGED <<coord, ts, rec, val, net, queue, bg, returned, persisted>>

(* Releases the WRLock of an update that has become obsolete, and keeps what made it so. *)
Give(w, n, line, then) ==
    /\ At(w, n, line)
    /\ rec' = Unlocked(n)
    /\ proc' = [proc EXCEPT ![w][n].pc = then]
    /\ UNCHANGED <<coord, ts, val, net, queue, bg, returned, persisted>>

Issue(w, n) ==
    LET seen == Version(rec[n].vol)
        version == IF "AMB-15" \in Broken THEN seen + 1 ELSE Max(seen, rec[n].issued) + 1
    IN  /\ At(w, n, "line4")
        /\ ts' = [ts EXCEPT ![w] = Timestamp(version, n)]
        /\ rec' = [rec EXCEPT ![n].issued = version]
        /\ Goto(w, n, "line5")
        /\ UNCHANGED <<coord, val, net, queue, bg, returned, persisted>>

Invite(w, n) ==
    /\ At(w, n, "line11")
    /\ net' = net \union Sends("INV", w)
    /\ Goto(w, n, "line12")
    /\ UNCHANGED <<coord, ts, rec, val, queue, bg, returned, persisted>>

(* An INV that was rejected for want of resources is sent again. *)
InviteAgain(w) ==
    \E n \in Followers(w) :
        /\ <<"REJECT", w, n>> \in net
        /\ net' = (net \ {<<"REJECT", w, n>>}) \union {<<"INV", w, n>>}
        /\ UNCHANGED <<coord, ts, rec, proc, val, queue, bg, returned, persisted>>

Return(w, n) ==
    /\ At(w, n, "line7")
    /\ returned' = returned \union {w}
    /\ Goto(w, n, "done")
    /\ UNCHANGED <<coord, ts, rec, val, net, queue, bg, persisted>>

Coordinates(w, n) ==
    \/ Issue(w, n)
    \/ Test(w, n, "line5", "line6", "line8")
    \/ Sequence(w, n, "line6", ObsoleteAtCoordinator, "line7")
    \/ Line(w, n, "line8", Snatched(w, n), IF Offload THEN "line10" ELSE "line9")
    \/ rec[n].wr = None /\ Line(w, n, "line9", Locked(w, n), "line10")
    \/ Test(w, n, "line10", IF Offload THEN "line16" ELSE "line15", "line11")
    \/ Invite(w, n)
    \/ ~Offload /\ Line(w, n, "line12", Updated(w, n), "line13")
    \/ Offload /\ Enqueue(w, n, "line12", "complete")
    \/ Line(w, n, "line13", Unlocked(n), "complete")
    \/ Give(w, n, "line15", "line16")
    \/ Sequence(w, n, "line16", ObsoleteAtCoordinator, "line20")
    \/ MayRelease(w, n) /\ Line(w, n, "line20", Released(w, n), "line7")
    \/ Sequence(w, n, "complete", Coordinator, "done")
    \/ Return(w, n)

Invited26(w, n) ==
    /\ At(w, n, "line26")
    /\ <<"INV", w, n>> \in net
    /\ Goto(w, n, "line27")
    /\ UNCHANGED <<coord, ts, rec, val, net, queue, bg, returned, persisted>>

Reject(w, n) ==
    /\ Offload
    /\ At(w, n, "line26")
    /\ <<"INV", w, n>> \in net
    /\ Cardinality(queue[n]) >= Entries
    /\ net' = (net \ {<<"INV", w, n>>}) \union {<<"REJECT", w, n>>}
    /\ UNCHANGED <<coord, ts, rec, proc, val, queue, bg, returned, persisted>>

Follows(w, n) ==
    \/ Invited26(w, n)
    \/ Test(w, n, "line27", "line28", "line31")
    \/ Sequence(w, n, "line28", ObsoleteAtFollower, "done")
    \/ Line(w, n, "line31", Snatched(w, n), IF Offload THEN "line34" ELSE "line32")
    \/ rec[n].wr = None /\ Line(w, n, "line32", Locked(w, n), "line33")
    \/ IF "applies what is obsolete" \in Broken
       THEN Line(w, n, "line33", rec, "line34")
       ELSE Test(w, n, "line33", "line36", "line34")
    \/ ~Offload /\ Line(w, n, "line34", Updated(w, n), "line35")
    \/ Offload /\ Enqueue(w, n, "line34", "line39")
    \/ Line(w, n, "line35", Unlocked(n), "line39")
    \/ Give(w, n, "line36", "line28")
    \/ Sequence(w, n, "line39", Follower, "done")

(* Lines 41 to 44: a VAL or VAL_C, and a VAL_P. *)
Validated(w, n) ==
    /\ val[w][n].c <= Len(OnVal)
    /\ <<"VAL", w, n>> \in net \/ <<"VAL_C", w, n>> \in net
    /\ Do(OnVal[val[w][n].c], w, n)
    /\ val' = [val EXCEPT ![w][n].c = @ + 1]
    /\ UNCHANGED <<coord, ts, proc, queue, persisted>>

ValidatedP(w, n) ==
    /\ val[w][n].p <= Len(OnValP)
    /\ <<"VAL_P", w, n>> \in net
    /\ Do(OnValP[val[w][n].p], w, n)
    /\ val' = [val EXCEPT ![w][n].p = @ + 1]
    /\ UNCHANGED <<coord, ts, proc, queue, persisted>>

PersistInBackground(w, n) ==
    /\ <<w, n>> \in bg
    /\ bg' = bg \ {<<w, n>>}
    /\ rec' = [rec EXCEPT ![n].dur = Max(@, ts[w])]
    /\ UNCHANGED <<coord, ts, proc, val, net, queue, returned, persisted>>

(* "When the hardware dequeues an entry from the vFIFO queue, it checks for obsoleteness." *)
Drain(w, n) ==
    /\ w \in queue[n]
    /\ queue' = [queue EXCEPT ![n] = @ \ {w}]
    /\ rec' = IF rec[n].val >= ts[w] /\ "applies what is obsolete" \notin Broken THEN rec
              ELSE [rec EXCEPT ![n].val = ts[w], ![n].who = w, ![n].vol = Max(@, ts[w])]
    /\ UNCHANGED <<coord, ts, proc, val, net, bg, returned, persisted>>

(* [PERSIST]sc. Each write is a scope, which its client ends behind the response. AMB-18: what     *)
(* made a write of the scope obsolete is durable as well.                                          *)
OwnIsDurable(w, n) ==
    \/ rec[n].dur >= ts[w]
    \/ "AMB-18" \in Broken /\ proc[w][n].pc = "done" /\ <<w, n>> \notin bg

Persist(w) ==
    /\ Model = "scope"
    /\ w \in returned
    /\ Sends("PERSIST", w) \intersect net = {}
    /\ net' = net \union Sends("PERSIST", w)
    /\ UNCHANGED <<coord, ts, rec, proc, val, queue, bg, returned, persisted>>

FollowPersist(w, n) ==
    /\ <<"PERSIST", w, n>> \in net
    /\ <<"ACK_P", w, n>> \notin net
    /\ OwnIsDurable(w, n)
    /\ net' = net \union {<<"ACK_P", w, n>>}
    /\ UNCHANGED <<coord, ts, rec, proc, val, queue, bg, returned, persisted>>

Persisted(w) ==
    /\ Model = "scope"
    /\ w \in returned \ persisted
    /\ Sends("PERSIST", w) \subseteq net
    /\ OwnIsDurable(w, coord[w])
    /\ \A n \in Followers(w) : AckedP(w, n)
    /\ persisted' = persisted \union {w}
    /\ net' = net \union Sends("VAL_P", w)
    /\ UNCHANGED <<coord, ts, rec, proc, val, queue, bg, returned>>

-------------------------------------------------------------------------------

HasEnded(w, n) ==
    /\ At(w, n, "done") \/ (n # coord[w] /\ At(w, n, "line26") /\ At(w, coord[w], "done"))
    /\ <<"INV", w, n>> \in net => At(w, n, "done") /\ val[w][n].c > Len(OnVal)
    /\ <<"VAL_P", w, n>> \in net => val[w][n].p > Len(OnValP)

AllEnded ==
    /\ \A w \in Writes, n \in Nodes : HasEnded(w, n)
    /\ \A n \in Nodes : queue[n] = {}
    /\ bg = {}
    /\ Model = "scope" => persisted = Writes

Of(w, n) ==
    \/ n = coord[w] /\ Coordinates(w, n)
    \/ n # coord[w] /\ Follows(w, n)

Next ==
    \/ \E w \in Writes, n \in Nodes :
          \/ Of(w, n)
          \/ Reject(w, n)
          \/ Validated(w, n)
          \/ ValidatedP(w, n)
          \/ PersistInBackground(w, n)
          \/ Drain(w, n)
          \/ FollowPersist(w, n)
    \/ \E w \in Writes : InviteAgain(w) \/ Persist(w) \/ Persisted(w)
    \/ AllEnded /\ UNCHANGED vars

(* Every process goes on if it can; rejecting is the only thing that nobody must do. *)
Fairness ==
    /\ \A w \in Writes, n \in Nodes :
          /\ WF_vars(Of(w, n))
          /\ WF_vars(Validated(w, n))
          /\ WF_vars(ValidatedP(w, n))
          /\ WF_vars(PersistInBackground(w, n))
          /\ WF_vars(Drain(w, n))
          /\ WF_vars(FollowPersist(w, n))
    /\ \A w \in Writes :
          WF_vars(InviteAgain(w)) /\ WF_vars(Persist(w)) /\ WF_vars(Persisted(w))

Spec == Init /\ [][Next]_vars /\ Fairness

-------------------------------------------------------------------------------
(* Table I, with AMB-17's corrections, and the rules of section II-A. *)

(* 1: no livelock. (No deadlock is TLC's own check.) *)
EveryWriteEnds == <>AllEnded

Unlocks == \A n \in Nodes : rec[n].rd = None

(* 2a *)
UnlockedRecordsAgree ==
    Unlocks => \A n, m \in Nodes : rec[n].vol = rec[m].vol /\ rec[n].glbV = rec[m].glbV

Position(step) == CHOOSE i \in 1 .. Len(Coordinator) : Coordinator[i] = step
PastLine19(w) ==
    LET own == proc[w][coord[w]]
    IN  \/ own.pc = "complete" /\ own.at > Position("SpinC")
        \/ own.pc = "done" /\ Invited(w)

(* 2b* *)
AcknowledgedIsEverywhere ==
    \A w \in Writes : PastLine19(w) => \A n \in Nodes : rec[n].vol >= ts[w]

FullyAcked(Acked(_, _)) ==
    {0} \union {ts[w] : w \in {w \in Writes : ts[w] # None /\ \A n \in Followers(w) : Acked(w, n)}}
MaxOf(set) == CHOOSE x \in set : \A y \in set : x >= y

(* 2c* *)
GlobalVolatileIsAcknowledged ==
    \A n \in Nodes : rec[n].glbV <= rec[n].vol /\ rec[n].glbV <= MaxOf(FullyAcked(AckedC))

(* 3a. Strict releases the RDLock before VAL_P: there the timestamps agree in the end. *)
DurableTimestampsAgree ==
    (Unlocks /\ Model # "strict") \/ AllEnded =>
        \A n, m \in Nodes : rec[n].glbD = rec[m].glbD

(* 3b* *)
GlobalDurableIsDurable == \A n, m \in Nodes : rec[n].glbD <= rec[m].dur

Stamps == {None} \union 0 .. Timestamp(W + 1, N - 1)

(* 4a, 4b, 4c *)
TypesAreLegal ==
    /\ \A message \in net :
          message[1] \in Alphabet /\ message[2] \in Writes /\ message[3] \in Followers(message[2])
    /\ \A n \in Nodes :
          /\ rec[n].rd \in Stamps
          /\ rec[n].wr \in Writes \union {None}
          /\ {rec[n].vol, rec[n].glbV, rec[n].glbD, rec[n].dur, rec[n].val} \subseteq Stamps \ {None}
    /\ Offload => \A n \in Nodes : rec[n].wr = None /\ Cardinality(queue[n]) <= Entries

(* A readable replica has its newest update, no other replica lacks it, and equal timestamps stand *)
(* for equal values.                                                                               *)
ReadsAreLinearizable ==
    /\ \A n \in Nodes : rec[n].rd = None =>
          rec[n].val = rec[n].vol /\ \A m \in Nodes : rec[m].vol >= rec[n].val
    /\ \A n, m \in Nodes : rec[n].val = rec[m].val => rec[n].who = rec[m].who

(* A write whose client has its response is in every replica's volatile memory. *)
WritesAreLinearizable ==
    \A w \in returned : \A n \in Nodes : rec[n].vol >= ts[w]

(* A younger write supersedes an older one, in the log as well. *)
DurableEverywhere(t) == \A n \in Nodes : rec[n].dur >= t

PersistencyHolds ==
    /\ Model \in {"synch", "strict"} => \A w \in returned : DurableEverywhere(ts[w])
    /\ Model \in {"synch", "renf"} =>
          \A n \in Nodes : rec[n].rd = None => DurableEverywhere(rec[n].val)
    /\ Model = "scope" => \A w \in persisted : DurableEverywhere(ts[w])
    /\ AllEnded => \A n \in Nodes : rec[n].dur = rec[n].vol /\ rec[n].val = rec[n].vol /\ Unlocks
===============================================================================
