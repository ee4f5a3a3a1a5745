// The rank of a request at one worker: the sum of the weights of the features that both show, 65,534 at
// most. An adder tree of 512 terms in three steps of eight. [AlNiCo22, sum reduction]
module rank_tree #(
    parameter FEATURES = 512
) (
    input  wire                    clk,
    input  wire                    advance,
    // What the request and the worker both show.
    input  wire [FEATURES-1:0]     met,
    input  wire [8*FEATURES-1:0]   weights,
    // Three cycles later.
    output reg  [15:0]             rank
);
    localparam PAIRS = FEATURES / 2;
    localparam FIRST = FEATURES / 8;
    localparam SECOND = FIRST / 8;
    wire [9*PAIRS-1:0]   pairs;
    reg  [11*FIRST-1:0]  first;
    reg  [14*SECOND-1:0] second;
    wire [11*FIRST-1:0]  next_first;
    wire [14*SECOND-1:0] next_second;
    wire [16:0]          sum;
    genvar group;
    generate
        for (group = 0; group < PAIRS; group = group + 1) begin : of_pairs
            weighed_pair pair (
                .met(met[2*group +: 2]),
                .weights(weights[16*group +: 16]),
                .sum(pairs[9*group +: 9])
            );
        end
        for (group = 0; group < FIRST; group = group + 1) begin : firsts
            sum_of_four #(.BITS(9)) four (
                .terms(pairs[36*group +: 36]),
                .sum(next_first[11*group +: 11])
            );
        end
        for (group = 0; group < SECOND; group = group + 1) begin : seconds
            sum_of_eight #(.BITS(11)) eight (
                .terms(first[88*group +: 88]),
                .sum(next_second[14*group +: 14])
            );
        end
    endgenerate
    sum_of_eight #(.BITS(14)) all (.terms(second), .sum(sum));

    always @(posedge clk) if (advance) begin
        first <= next_first;
        second <= next_second;
        rank <= (sum > 17'd65534) ? 16'd65534 : sum[15:0];
    end
endmodule
