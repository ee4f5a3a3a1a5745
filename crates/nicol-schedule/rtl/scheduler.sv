// AlNiCo's scheduler: which worker a request goes to, one decision a cycle when the pipeline is filled.
// One clock, no vendor parts.
//
//   cycle 1     the request is taken
//   cycles 2-4  its rank at each worker: what it shows AND what the worker shows, weighed and summed
//   cycles 5-6  the highest rank; of several the lowest worker, and none without a rank: the hint
//   cycle 7     the winner's counters
//
// Counters have 8 bits for each worker and feature (C2.06). They are kept as what was added and what was
// taken away, so that a decision and a completion change different memories in the same cycle. What
// workers show is looked at anew every REFRESH decisions (C2.06), and when new vectors are taken over; the
// pipeline is empty meanwhile, so that decisions are those of a scheduler that decides one after the
// other. Weights and steering are double-buffered: a decision never mixes two epochs (AMB-21).
//
// Requests are taken while fewer than 255 are under way, so that no counter ever wraps (AMB-38).
module scheduler #(
    parameter FEATURES = 512,
    parameter WORKERS  = 24,
    parameter REFRESH  = 1024
) (
    input  wire                clk,
    input  wire                reset,
    // Requests.
    input  wire                request_valid,
    output wire                request_ready,
    input  wire [FEATURES-1:0] request_vector,
    input  wire [4:0]          request_hint,
    // Decisions, in the order of the requests.
    output reg                 decision_valid,
    input  wire                decision_ready,
    output reg  [4:0]          decision_worker,
    // Requests that are done, and where.
    input  wire                done_valid,
    output wire                done_ready,
    input  wire [FEATURES-1:0] done_vector,
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
    localparam [1:0] CLEAR = 0, RUN = 1, DRAIN = 2, LOOK = 3;
    localparam LAST = WORKERS - 1;

    // Vectors in use, and the next ones.
    reg [8*FEATURES-1:0] weights, next_weights;
    reg [5*FEATURES-1:0] steering, next_steering;

    // What each worker shows.
    reg [WORKERS*FEATURES-1:0] shown;

    // Counters: by worker, eight bits a feature.
    reg [8*FEATURES-1:0] added   [0:WORKERS-1];
    reg [8*FEATURES-1:0] removed [0:WORKERS-1];

    reg [1:0]  state;
    reg [4:0]  looking;
    reg        swapping;
    reg [9:0]  decisions;
    reg [7:0]  open;

    // The pipeline: requests on their way, and where their clients would send them.
    reg [FEATURES-1:0] vector [0:4];
    reg [4:0]          hint   [0:4];
    reg [5:0]          valid;
    reg [FEATURES-1:0] counted_vector;
    reg                counted;
    reg [4:0]          counted_worker;

    wire advance = !decision_valid || decision_ready;
    wire is_empty = valid == 0 && !counted;
    assign request_ready = state == RUN && advance && !swap_valid && open < 8'd255;
    assign done_ready = state == RUN && !swap_valid;
    assign swap_ready = state == DRAIN && swapping && is_empty;
    wire takes = request_valid && request_ready;
    wire completes = done_valid && done_ready;

    // Ranks. [AlNiCo22, data parallelism and sum reduction]
    wire [16*WORKERS-1:0] ranks;
    genvar worker;
    generate
        for (worker = 0; worker < WORKERS; worker = worker + 1) begin : trees
            rank_tree #(.FEATURES(FEATURES)) tree (
                .clk(clk),
                .advance(advance),
                .met(vector[0] & shown[FEATURES*worker +: FEATURES]),
                .weights(weights),
                .rank(ranks[16*worker +: 16])
            );
        end
    endgenerate

    // The highest rank, in two steps: of four workers each, then of all. [AlNiCo22, max reduction]
    localparam GROUPS = WORKERS / 4;
    reg [16*GROUPS-1:0] group_rank, next_group_rank;
    reg [5*GROUPS-1:0]  group_worker, next_group_worker;
    reg [15:0] best;
    reg [4:0]  winner;
    integer    group, at, stage, feature;
    always @* begin
        for (group = 0; group < GROUPS; group = group + 1) begin
            next_group_rank[16*group +: 16] = ranks[64*group +: 16];
            next_group_worker[5*group +: 5] = 4 * group;
            for (at = 4 * group + 1; at < 4 * group + 4; at = at + 1)
                if (ranks[16*at +: 16] > next_group_rank[16*group +: 16]) begin
                    next_group_rank[16*group +: 16] = ranks[16*at +: 16];
                    next_group_worker[5*group +: 5] = at;
                end
        end
        best = 0;
        winner = hint[4];
        for (group = 0; group < GROUPS; group = group + 1)
            if (group_rank[16*group +: 16] > best) begin
                best = group_rank[16*group +: 16];
                winner = group_worker[5*group +: 5];
            end
    end

    always @(posedge clk) begin
        if (reset) begin
            valid <= 0;
            decision_valid <= 0;
        end else if (advance) begin
            vector[0] <= request_vector;
            // A client may hint at a worker that is not there.
            hint[0] <= request_hint < WORKERS ? request_hint : request_hint - WORKERS;
            for (stage = 1; stage < 5; stage = stage + 1) begin
                vector[stage] <= vector[stage-1];
                hint[stage] <= hint[stage-1];
            end
            valid <= {valid[4:0], takes};
            group_rank <= next_group_rank;
            group_worker <= next_group_worker;
            decision_valid <= valid[4];
            decision_worker <= winner;
        end
    end

    // Counters change one cycle after the decision. Each memory has one row that is read and written.
    wire [4:0] added_row = state == CLEAR ? looking : counted_worker;
    wire [4:0] removed_row = state == CLEAR ? looking : done_worker;
    wire [8*FEATURES-1:0] added_was = added[state == LOOK ? looking : added_row];
    wire [8*FEATURES-1:0] removed_was = removed[state == LOOK ? looking : removed_row];
    reg  [8*FEATURES-1:0] added_is, removed_is;
    reg  [FEATURES-1:0]   shows;
    always @* begin
        for (feature = 0; feature < FEATURES; feature = feature + 1) begin
            added_is[8*feature +: 8] = added_was[8*feature +: 8] + {7'b0, counted_vector[feature]};
            removed_is[8*feature +: 8] = removed_was[8*feature +: 8] + {7'b0, done_vector[feature]};
            // A worker that is not there steers nothing.
            shows[feature] = steering[5*feature +: 5] < WORKERS
                ? steering[5*feature +: 5] == looking
                : added_was[8*feature +: 8] != removed_was[8*feature +: 8];
        end
    end
    always @(posedge clk) begin
        if (reset) begin
            counted <= 0;
        end else begin
            counted <= advance && valid[4];
            counted_worker <= winner;
            counted_vector <= vector[4];
        end
        if (state == CLEAR || counted)
            added[added_row] <= state == CLEAR ? {8*FEATURES{1'b0}} : added_is;
        if (state == CLEAR || completes)
            removed[removed_row] <= state == CLEAR ? {8*FEATURES{1'b0}} : removed_is;
    end

    // When it takes requests, and when it looks at the counters.
    integer place;
    always @(posedge clk) begin
        // Compared with each place, not shifted to one: a shifter of all bits would be the larger part.
        for (place = 0; place < FEATURES; place = place + 1)
            if (vector_valid && vector_feature == place) begin
                next_weights[8*place +: 8] <= vector_weight;
                next_steering[5*place +: 5] <= vector_steering;
            end
        if (reset) begin
            state <= CLEAR;
            looking <= 0;
            swapping <= 0;
            decisions <= 0;
            open <= 0;
            weights <= 0;
            steering <= {FEATURES{NOBODY}};
            shown <= 0;
        end else begin
            open <= open + {7'b0, takes} - {7'b0, completes};
            case (state)
                CLEAR: begin
                    looking <= looking + 1;
                    if (looking == LAST) state <= RUN;
                end
                RUN: begin
                    if (takes) decisions <= decisions + 1;
                    if (swap_valid || (takes && decisions == REFRESH - 1)) state <= DRAIN;
                    swapping <= swap_valid;
                end
                DRAIN: if (is_empty) begin
                    if (swapping) begin
                        weights <= next_weights;
                        steering <= next_steering;
                    end
                    looking <= 0;
                    state <= LOOK;
                end
                LOOK: begin
                    for (place = 0; place < WORKERS; place = place + 1)
                        if (looking == place) shown[FEATURES*place +: FEATURES] <= shows;
                    looking <= looking + 1;
                    if (looking == LAST) state <= RUN;
                end
            endcase
        end
    end
endmodule
