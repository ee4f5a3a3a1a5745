// AlNiCo's scheduler with the ranking that is Nicol's default (AMB-22, improved) and two planes of features
// (AMB-23). One clock, no vendor parts.
//
// Counters count at once, so that each decision rests on the one before: requests are decided one after the
// other, each in seven cycles, while scheduler.sv takes one in every cycle and looks at its counters now and
// then.
//
//   cycle 1     the request is taken
//   cycles 2-4  its rank at each worker: what it touches AND what the worker's requests write, or what it
//               writes AND what they touch, weighed and summed
//   cycles 5-6  the highest rank among workers whose queue is not too long; of several the shortest queue,
//               and of several of these the one whose turn comes first
//   cycle 7     the winner's counters, and what it shows from now on
//
// Counters have 8 bits for each worker, feature and plane (C2.06). Requests are taken while fewer than 255
// are under way, so that no counter ever wraps (AMB-38), and no queue is full. Weights and steering are
// double-buffered: a decision never mixes two epochs (AMB-21).
module serial_scheduler #(
    parameter FEATURES = 512,
    parameter WORKERS  = 24
) (
    input  wire                clk,
    input  wire                reset,
    // Requests: what they read or write, and what of that they write.
    input  wire                request_valid,
    output wire                request_ready,
    input  wire [FEATURES-1:0] request_vector,
    input  wire [FEATURES-1:0] request_written,
    // Decisions, in the order of the requests.
    output reg                 decision_valid,
    input  wire                decision_ready,
    output reg  [4:0]          decision_worker,
    // Requests that are done, and where.
    input  wire                done_valid,
    output wire                done_ready,
    input  wire [FEATURES-1:0] done_vector,
    input  wire [FEATURES-1:0] done_written,
    input  wire [4:0]          done_worker,
    // Vectors: feature by feature into the buffer that is not in use, then the swap. Steering 31, or any
    // other that is no worker's number: nobody.
    input  wire                vector_valid,
    input  wire [8:0]          vector_feature,
    input  wire [7:0]          vector_weight,
    input  wire [4:0]          vector_steering,
    input  wire                swap_valid,
    output wire                swap_ready
);
    localparam NOBODY = 5'd31;
    localparam [1:0] CLEAR = 0, RUN = 1, LOOK = 2;
    localparam LAST = WORKERS - 1;
    // By so many a queue may be longer than twice the mean.
    localparam [7:0] SLACK = 8'd4;

    // Vectors in use, and the next ones.
    reg [8*FEATURES-1:0] weights, next_weights;
    reg [5*FEATURES-1:0] steering, next_steering;

    // What each worker's requests touch, and what they write.
    reg [WORKERS*FEATURES-1:0] touched, written;
    // Counters: by worker, eight bits a feature.
    reg [8*FEATURES-1:0] touching [0:WORKERS-1];
    reg [8*FEATURES-1:0] writing  [0:WORKERS-1];
    // How many requests each worker has.
    reg [8*WORKERS-1:0] queued;
    reg [7:0] open;
    reg [4:0] turn;

    reg [1:0] state;
    reg [4:0] looking;

    // The request that is being decided, and the cycle that it is in.
    reg [FEATURES-1:0] vector, writes;
    reg [5:0]          stage;
    wire is_idle = stage == 0;
    wire counts  = stage[5];
    wire swaps   = swap_valid && swap_ready;
    assign request_ready = state == RUN && is_idle && !swap_valid && open < 8'd255
        && (!decision_valid || decision_ready);
    assign done_ready = state == RUN && is_idle && !swap_valid;
    assign swap_ready = state == RUN && is_idle;
    wire takes = request_valid && request_ready;
    wire completes = done_valid && done_ready;

    // Ranks. [AlNiCo22, data parallelism and sum reduction]
    wire [16*WORKERS-1:0] ranks;
    genvar worker;
    generate
        for (worker = 0; worker < WORKERS; worker = worker + 1) begin : trees
            rank_tree #(.FEATURES(FEATURES)) tree (
                .clk(clk),
                .advance(!is_idle),
                .met((vector & written[FEATURES*worker +: FEATURES])
                    | (writes & touched[FEATURES*worker +: FEATURES])),
                .weights(weights),
                .rank(ranks[16*worker +: 16])
            );
        end
    endgenerate

    // What is compared of each worker: whether its queue is short enough, its rank, its queue, and whether
    // its turn comes before those of the workers below it. The highest wins, in two steps: of four workers
    // each, then of all. [AlNiCo22, max reduction]
    localparam KEY = 26;
    localparam GROUPS = WORKERS / 4;
    reg [7:0]            longest;
    reg [KEY*WORKERS-1:0] keys;
    reg [KEY*GROUPS-1:0] group_key, next_group_key;
    reg [5*GROUPS-1:0]   group_worker, next_group_worker;
    reg [KEY-1:0]        best;
    reg [4:0]            best_worker, winner;
    integer              group, at, feature;
    always @* begin
        for (at = 0; at < WORKERS; at = at + 1)
            keys[KEY*at +: KEY] = {
                queued[8*at +: 8] <= longest,
                ranks[16*at +: 16],
                ~queued[8*at +: 8],
                at[4:0] >= turn
            };
        for (group = 0; group < GROUPS; group = group + 1) begin
            next_group_key[KEY*group +: KEY] = keys[4*KEY*group +: KEY];
            next_group_worker[5*group +: 5] = 4 * group;
            for (at = 4 * group + 1; at < 4 * group + 4; at = at + 1)
                if (keys[KEY*at +: KEY] > next_group_key[KEY*group +: KEY]) begin
                    next_group_key[KEY*group +: KEY] = keys[KEY*at +: KEY];
                    next_group_worker[5*group +: 5] = at;
                end
        end
        best = group_key[0 +: KEY];
        best_worker = group_worker[0 +: 5];
        for (group = 1; group < GROUPS; group = group + 1)
            if (group_key[KEY*group +: KEY] > best) begin
                best = group_key[KEY*group +: KEY];
                best_worker = group_worker[5*group +: 5];
            end
    end

    always @(posedge clk) begin
        if (reset) begin
            stage <= 0;
            decision_valid <= 0;
        end else begin
            stage <= {stage[4:0], takes};
            if (counts) decision_valid <= 1;
            else if (decision_ready) decision_valid <= 0;
        end
        if (takes) begin
            vector <= request_vector;
            writes <= request_written;
        end
        // Of a request that is done in the cycle in which another is taken, the queue is shorter already.
        if (stage[0]) longest <= {open, 1'b0} / WORKERS + SLACK;
        group_key <= next_group_key;
        group_worker <= next_group_worker;
        winner <= best_worker;
        if (counts) decision_worker <= winner;
    end

    // One worker's counters are read and written in a cycle: those of a decision, of a request that is done,
    // or of the worker whose counters are cleared or looked at.
    wire [4:0] row = counts ? winner : state == RUN ? done_worker : looking;
    wire [8*FEATURES-1:0] touching_was = touching[row];
    wire [8*FEATURES-1:0] writing_was = writing[row];
    wire [FEATURES-1:0] changed = counts ? vector : completes ? done_vector : {FEATURES{1'b0}};
    wire [FEATURES-1:0] changed_writes = counts ? writes : completes ? done_written : {FEATURES{1'b0}};
    // One more, or one less.
    wire [7:0] step = counts ? 8'd1 : 8'd255;
    reg  [8*FEATURES-1:0] touching_is, writing_is;
    reg  [FEATURES-1:0]   is_touched, is_written;
    always @* begin
        for (feature = 0; feature < FEATURES; feature = feature + 1) begin
            touching_is[8*feature +: 8] =
                touching_was[8*feature +: 8] + (changed[feature] ? step : 8'd0);
            writing_is[8*feature +: 8] =
                writing_was[8*feature +: 8] + (changed_writes[feature] ? step : 8'd0);
            // A steered feature is its worker's alone. One that is not there steers nothing.
            is_touched[feature] = steering[5*feature +: 5] < WORKERS
                ? steering[5*feature +: 5] == row : touching_is[8*feature +: 8] != 0;
            is_written[feature] = steering[5*feature +: 5] < WORKERS
                ? steering[5*feature +: 5] == row : writing_is[8*feature +: 8] != 0;
        end
    end
    integer place;
    always @(posedge clk) begin
        if (state == CLEAR || counts || completes) begin
            touching[row] <= state == CLEAR ? {8*FEATURES{1'b0}} : touching_is;
            writing[row] <= state == CLEAR ? {8*FEATURES{1'b0}} : writing_is;
        end
        if (reset) begin
            touched <= 0;
            written <= 0;
        end else if (state == LOOK || counts || completes) begin
            for (place = 0; place < WORKERS; place = place + 1)
                if (row == place) begin
                    touched[FEATURES*place +: FEATURES] <= is_touched;
                    written[FEATURES*place +: FEATURES] <= is_written;
                end
        end
    end

    // When it takes requests, how many there are, and when all workers are looked at.
    integer slot;
    always @(posedge clk) begin
        // Compared with each place, not shifted to one: a shifter of all bits would be the larger part.
        for (slot = 0; slot < FEATURES; slot = slot + 1)
            if (vector_valid && vector_feature == slot) begin
                next_weights[8*slot +: 8] <= vector_weight;
                next_steering[5*slot +: 5] <= vector_steering;
            end
        if (reset) begin
            state <= CLEAR;
            looking <= 0;
            queued <= 0;
            open <= 0;
            turn <= 0;
            weights <= 0;
            steering <= {FEATURES{NOBODY}};
        end else begin
            if (counts || completes) begin
                for (slot = 0; slot < WORKERS; slot = slot + 1)
                    if (row == slot) queued[8*slot +: 8] <= queued[8*slot +: 8] + step;
                open <= open + step;
            end
            if (counts) turn <= turn == LAST ? 0 : turn + 1;
            case (state)
                RUN: if (swaps) begin
                    weights <= next_weights;
                    steering <= next_steering;
                    looking <= 0;
                    state <= LOOK;
                end
                default: begin
                    looking <= looking + 1;
                    if (looking == LAST) state <= RUN;
                end
            endcase
        end
    end
endmodule
